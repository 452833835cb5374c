"""What equal means here."""

import numpy as np

TOLERANCE = 1e-5


def assert_same(found, expected):
    """Equal to 1e-5, both relative and absolute."""
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE)
