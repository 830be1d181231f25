# mypy: disable-error-code="no-untyped-call,override,misc,attr-defined,arg-type,assignment,method-assign"
"""A GPU that is none: its tensors compute on the CPU, live on another device, and refuse what CUDA refuses.

    with pretended_gpu() as gpu:
        method.to(NAME)
    gpu.waits        where Python would wait for the GPU, and why
    gpu.collectives  what ranks would be asked to do together, and who asked
    gpu.peak         bytes on the device, at most
    gpu.ops          what ran there, with the kind of numbers that a convolution or product had

The device is torch's PrivateUse1. A tensor of it wraps a CPU tensor, so results are those of the CPU to the last bit.
It cannot see CUDA's rounding, streams and time. It is set up once for all in a process, so it needs one of its own.
"""

import contextlib
import inspect
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor
from torch.optim import optimizer as torch_optimizer
from torch.utils import _foreach_utils
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map_only
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

import somnet

NAME = "gpu"
PACKAGE = str(Path(somnet.__file__).parent) + "/"
RANKS = "system/ranks.py"  # asks for others
aten = torch.ops.aten

_setup_privateuseone_for_python_backend(NAME)
DEVICE = torch.device(NAME, 0)

INDEXING = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}
INDEXING |= {aten._unsafe_index.Tensor}
SAME_DEVICE = {"cat", "stack", "index_add", "index_add_", "gather", "scatter", "scatter_", "embedding", "index_select"}
WAITING = {  # the result, or its shape, has to be known to Python
    *("_local_scalar_dense", "item", "equal", "nonzero", "_unique2", "unique_dim", "unique_consecutive"),
    *("masked_select", "bincount", "_coalesce", "is_nonzero", "allclose", "repeat_interleave", "_linalg_eigh"),
}
LOWERED = ("conv2d", "convolution", "_convolution", "linear", "matmul", "mm", "addmm", "bmm", "baddbmm")
HEAVY = {"convolution", "convolution_backward", "mm", "addmm", "bmm", "baddbmm"}


class GpuTensor(Tensor):
    """A CPU tensor that claims to be on the device."""

    raw: Tensor
    token: "_Token"

    @staticmethod
    def __new__(cls, raw: Tensor) -> "GpuTensor":
        dense = raw.layout == torch.strided
        made: GpuTensor = Tensor._make_wrapper_subclass(
            cls,
            raw.size(),
            strides=raw.stride() if dense else None,
            storage_offset=raw.storage_offset() if dense else None,
            dtype=raw.dtype,
            device=DEVICE,
            requires_grad=raw.requires_grad,
        )
        made.raw = raw.detach() if raw.requires_grad else raw
        if _ACTIVE and dense:
            _ACTIVE[-1].holds(made)
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    is_sparse = property(lambda self: self.raw.is_sparse)

    def coalesce(self) -> "GpuTensor":
        _ACTIVE[-1].wait("coalesce")
        return GpuTensor(self.raw.coalesce())

    def _indices(self) -> "GpuTensor":
        return GpuTensor(self.raw._indices())

    def _values(self) -> "GpuTensor":
        return GpuTensor(self.raw._values())

    def __deepcopy__(self, memo: dict[int, Any]) -> "GpuTensor":
        if id(self) not in memo:
            copied = GpuTensor(self.raw.clone()).requires_grad_(self.requires_grad)
            if getattr(self, "_is_param", False):
                copied._is_param = True
            memo[id(self)] = copied
        found: GpuTensor = memo[id(self)]
        return found

    def data_ptr(self) -> int:
        return self.raw.data_ptr()

    def tolist(self) -> Any:
        _ACTIVE[-1].wait("tolist")
        return self.raw.tolist()

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"GpuTensor({self.raw})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {}, _ACTIVE[-1] if _ACTIVE else PretendedGpu())


class _Token:
    """Lives as long as the tensor that has it: torch may bury and revive the Python side of a tensor."""


class PretendedGpu(TorchDispatchMode):
    """While this is active, `device="gpu"` works everywhere; beyond its room it is out of memory."""

    def __init__(self, room: int | None = None) -> None:
        super().__init__()
        self.room = room
        self.waits: Counter[str] = Counter()
        self.ops: Counter[str] = Counter()
        self.collectives: Counter[str] = Counter()
        self.held, self.peak = 0, 0  # without what a kernel takes for itself
        self._users: Counter[int] = Counter()

    def __enter__(self) -> Self:
        _ACTIVE.append(self)
        super().__enter__()
        return self

    def __exit__(self, *how: Any) -> None:
        super().__exit__(*how)
        _ACTIVE.remove(self)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {}, self)

    def holds(self, tensor: GpuTensor) -> None:
        """Count the bytes of a tensor's memory as long as any tensor of the device uses it."""
        memory = tensor.raw.untyped_storage()
        key, size = memory.data_ptr(), memory.nbytes()
        if self._users[key] == 0:
            if self.room is not None and self.held + size > self.room:
                raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes.")
            self.held += size
            self.peak = max(self.peak, self.held)
        self._users[key] += 1
        tensor.token = _Token()
        weakref.finalize(tensor.token, self._lets_go, key, size)

    def _lets_go(self, key: int, size: int) -> None:
        self._users[key] -= 1
        if self._users[key] == 0:
            self.held -= size

    def refuse(self, what: str) -> None:
        raise RuntimeError(f"CUDA would refuse {what} at {where()}")

    def wait(self, why: str) -> None:
        self.waits[f"{where()} {why}"] += 1


_ACTIVE: list[PretendedGpu] = []


def where(beyond: str = "") -> str:
    """The innermost line of the package on the stack, outside of the file `beyond`."""
    frame = inspect.currentframe()
    while frame is not None and (
        not frame.f_code.co_filename.startswith(PACKAGE) or frame.f_code.co_filename == PACKAGE + beyond
    ):
        frame = frame.f_back
    return "elsewhere" if frame is None else f"{frame.f_code.co_filename.removeprefix(PACKAGE)}:{frame.f_lineno}"


def _there(device: Any) -> bool:
    return device is not None and torch.device(device).type == NAME


def _run(func: Any, args: Any, kwargs: Any, gpu: PretendedGpu) -> Any:
    tensors = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)]
    mine = [x for x in tensors if isinstance(x, GpuTensor)]
    asked = kwargs.get("device")
    if func.namespace == "c10d":  # they write into what they are given
        name = func._schema.name.removeprefix("c10d::")
        gpu.collectives[f"{where(beyond=RANKS)} {name} on {NAME if mine else 'cpu'}"] += 1
        return func(*tree_map_only(GpuTensor, lambda x: x.raw, args), **kwargs)
    if not mine and not _there(asked):
        return func(*args, **kwargs)
    name = func._schema.name.removeprefix("aten::")
    kind = f" of {next(x.dtype for x in tensors if x.is_floating_point())}" if name in HEAVY else ""
    gpu.ops[f"{func}{kind}"] += 1
    _check(func, name, args, kwargs, tensors, gpu)
    here, more = tree_map_only(GpuTensor, lambda x: x.raw, (args, kwargs))
    if _there(asked):
        more = {**more, "device": torch.device("cpu")}
    more.pop("pin_memory", None)
    out = _heavy(func, here, more) if name in HEAVY else func(*here, **more)
    if not (_there(asked) if asked is not None else _stays(func, args)):
        return out
    wrapped = tree_map_only(Tensor, GpuTensor, out)
    if any(isinstance(x, GpuTensor) and x.raw.layout != torch.strided for x in tree_flatten(wrapped)[0]):
        return wrapped  # sparse: aliasing has no meaning for the wrapper
    return return_and_correct_aliasing(func, args, kwargs, wrapped)


def _heavy(func: Any, args: Any, kwargs: Any) -> Any:
    """In fp32, then rounded: some CPUs know no other convolution, and die of it."""
    kinds = {x.dtype for x in tree_flatten(args)[0] if isinstance(x, Tensor)} & {torch.bfloat16, torch.float16}
    if not kinds:
        return func(*args, **kwargs)
    wide = tree_map_only(Tensor, lambda x: x.float() if x.is_floating_point() else x, args)
    return tree_map_only(Tensor, lambda x: x.to(next(iter(kinds))), func(*wide, **kwargs))


def _stays(func: Any, args: Any) -> bool:
    """Whether the result of an operation on some tensor of the device is there too."""
    writes = (aten.copy_.default, aten.index_put_.default, aten._index_put_impl_.default)
    return isinstance(args[0], GpuTensor) if func in writes else True


def _check(func: Any, name: str, args: Any, kwargs: Any, tensors: Sequence[Tensor], gpu: PretendedGpu) -> None:
    others = [x for x in tensors if not isinstance(x, GpuTensor)]
    generator = kwargs.get("generator")
    if generator is not None and generator.device.type == "cpu":
        gpu.refuse(f"{func} with a generator of the CPU")
    if name in WAITING:
        gpu.wait(name)
    if func is aten._to_copy.default:
        if (asked := kwargs.get("device")) is not None:
            _check_copy(args[0], _there(asked), bool(kwargs.get("non_blocking")), gpu)
    elif func is aten.copy_.default:
        _check_copy(args[1], isinstance(args[0], GpuTensor), bool((*args, False)[2]), gpu)
    elif func in INDEXING:
        _check_index(func, args, gpu)
    elif others and (name in SAME_DEVICE or any(x.dim() for x in others)):
        gpu.refuse(f"{func} on {[(x.device.type, list(x.shape)) for x in tensors]}")


def _check_copy(source: Tensor, to_device: bool, ahead: bool, gpu: PretendedGpu) -> None:
    if to_device and not isinstance(source, GpuTensor):
        if not (ahead and getattr(source, "pinned", False)):
            gpu.wait("copy to the device from memory that is not pinned, or not ahead")
    elif not to_device and isinstance(source, GpuTensor):
        gpu.wait("copy to main memory")


def _check_index(func: Any, args: Any, gpu: PretendedGpu) -> None:
    places = [x for x in args[1] if x is not None]
    if not isinstance(args[0], GpuTensor):
        gpu.refuse(f"{func} with places of the device in a tensor of main memory")
    if len(args) > 2 and not isinstance(args[2], GpuTensor) and args[2].dim():
        gpu.refuse(f"{func} with values of main memory")
    if any(x.dtype in (torch.bool, torch.uint8) for x in places):
        gpu.wait("mask")
    if any(not isinstance(x, GpuTensor) for x in places):
        gpu.wait("places of main memory")


def _lowered(op: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(*args: Any, **kwargs: Any) -> Tensor:
        lower = torch.get_autocast_dtype(NAME)

        def cast(x: Tensor) -> Tensor:
            return x.to(lower) if x.is_floating_point() and x.device.type == NAME and x.dtype != torch.float64 else x

        args, kwargs = tree_map_only(Tensor, cast, (args, kwargs))
        with torch.autocast(NAME, enabled=False):
            return op(*args, **kwargs)

    return run


def _allow_autocast() -> list[torch.library.Library]:
    """Autocast for the operations that matter; the libraries live as long as the list."""
    others = torch.library.Library("_", "IMPL", "AutocastPrivateUse1")
    others.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    these = torch.library.Library("aten", "IMPL", "AutocastPrivateUse1")
    for name in LOWERED:
        these.impl(name, _lowered(getattr(aten, name).default))
    kinds = [torch.float16, torch.bfloat16, torch.float32]
    type(torch.get_device_module(NAME)).get_amp_supported_dtype = lambda self: kinds
    return [others, these]


_LIBRARIES = _allow_autocast()


@contextlib.contextmanager
def pretended_gpu(room: int | None = None) -> Iterator[PretendedGpu]:
    """A device "gpu" for tensors; CUDA's paths of the optimiser and of the gradient norm are taken."""
    both = (torch_optimizer._foreach_supported_types, _foreach_utils._foreach_supported_types)
    kinds = list({id(kinds): kinds for kinds in both}.values())
    for known in kinds:
        known.append(GpuTensor)
    torch._C._set_only_lift_cpu_tensors(True)
    pin_memory, Tensor.pin_memory = Tensor.pin_memory, _pinned
    try:  # the backward pass in this thread, where the mode is active
        with torch.autograd.set_multithreading_enabled(False), PretendedGpu(room) as gpu:
            yield gpu
    finally:
        Tensor.pin_memory = pin_memory
        torch._C._set_only_lift_cpu_tensors(False)
        for known in kinds:
            known.remove(GpuTensor)


def _pinned(tensor: Tensor) -> Tensor:
    """A copy in memory that the device can copy from while Python goes on."""
    copy = tensor.clone()
    copy.pinned = True
    return copy


def without_cuda_kernel(ops: Sequence[str]) -> list[str]:
    """Of operations that ran, those that CUDA has no kernel for; this needs a torch that was built for CUDA, no GPU."""
    names = {op.split(" of ")[0] for op in ops}
    missing = []
    for op in sorted(names):
        _, name, overload = op.split(".")
        full = f"aten::{name}" + ("" if overload == "default" else f".{overload}")
        keys = ("CUDA", "SparseCUDA")
        if not any(torch._C._dispatch_has_computed_kernel_for_dispatch_key(full, key) for key in keys):
            missing.append(op)
    return missing
