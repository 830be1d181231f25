"""What is wrong with the files of the training images, whatever a method thinks: copies, leaks, poor pictures."""

import pyarrow as pa

from somnet.data.dataset import DataSet, copies_held_out, copies_in_training
from somnet.data.duplicates import later_members
from somnet.data.picture_quality import faults_of, picture_scores, with_sizes


def with_file_issues(images: pa.Table, data: DataSet) -> pa.Table:
    """The table of readable images with columns about their files, behind those of unreadable ones."""
    part, copies, leaks = data.train, copies_in_training(data), copies_held_out(data)
    measures = with_sizes(part.scan.quality, part.scan.sizes)  # (n, 7)
    faults = pa.array(faults_of(measures), pa.string())
    new = {
        "is_near_duplicate_issue": pa.array(later_members(part.groups)),
        "near_duplicate_score": pa.array(copies.difference),
        "duplicate_group": pa.array(part.groups, pa.int32(), mask=part.groups < 0),
        "is_test_leak_issue": leaks.file_names.is_valid(),
        "test_leak_score": pa.array(leaks.difference),
        "test_leak_of": leaks.file_names,
        "is_poor_picture_issue": faults.is_valid(),
        "poor_picture_score": pa.array(picture_scores(measures)),
        "poor_picture_reason": faults,
    }
    place = images.schema.get_field_index("unreadable_reason") + 1
    for offset, (name, column) in enumerate(new.items()):
        images = images.add_column(place + offset, name, column)
    return images
