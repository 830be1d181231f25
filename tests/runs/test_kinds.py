"""What is wrong with an image, in words."""

import pyarrow as pa

from somnet.runs import kinds
from somnet.runs.kinds import with_reasons


def test_the_reasons_of_an_image_stand_in_the_table_the_gravest_first() -> None:
    images = pa.table(
        {
            "given_label": ["kiwi", "kiwi", "kiwi"],
            "label_score": pa.array([0.03, 0.99, 0.9], pa.float32()),
            "suggested_label": ["bird", None, None],
            "is_label_issue": [True, False, False],
            "is_near_duplicate_issue": [True, False, True],
            "clean_box": pa.array([[0.0, 0.0, 1.0, 1.0]] * 3, pa.list_(pa.float32(), 4)),
        }
    )
    copy = "An earlier training image shows the same; one copy is enough."
    wrong = "Probably not “kiwi”: the other images give this label 3 % and are sure of “bird”."
    written = with_reasons(images)
    assert written["reasons"].to_pylist() == [f"{wrong} {copy}", None, copy]
    assert written.column_names[:-1] == images.column_names
    many = pa.concat_tables([images] * (kinds.AT_ONCE // 2))
    assert with_reasons(many)["reasons"].to_pylist() == [f"{wrong} {copy}", None, copy] * (kinds.AT_ONCE // 2)
