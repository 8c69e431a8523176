"""The picture wall is drawn from the data room's rows."""

from tests.dataset.conftest import good_row, shots  # noqa: F401  (fixtures)
