"""Image features are computed once, and kept only as far as memory allows."""

import pytest
import torch

from cua_lab.engine.features import FeatureCache
from cua_lab.engine.prompt import image_inputs
from cua_lab.policy.policy import Policy
from tests.serving.conftest import screen


def test_features_beyond_the_memory_are_forgotten_and_computed_again(tiny: Policy) -> None:
    first, second = image_inputs([screen(1), screen(2)], tiny.vision)
    size = FeatureCache(tiny.model).get([first])[0].size
    cache = FeatureCache(tiny.model, max_bytes=size)
    found = cache.get([first, second])  # both are needed now, and only one may stay
    assert len(found) == 2
    assert cache.encoded == 2
    cache.get([second])
    assert cache.encoded == 2
    assert cache.get([first])[0].embeds.equal(found[0].embeds)
    assert cache.encoded == 3


def test_features_that_are_kept_hold_no_memory_but_their_own(tiny: Policy) -> None:
    """A view would keep the features of all images that were encoded together."""
    images = image_inputs([screen(n) for n in range(4)], tiny.vision)
    for one in FeatureCache(tiny.model).get(images):
        for part in (one.embeds, *one.deepstack):
            assert part.untyped_storage().nbytes() == part.numel() * part.element_size()


@pytest.mark.parametrize("side", [64, 96, 128, 192])
def test_features_do_not_depend_on_which_images_are_encoded_together(
    tiny: Policy, side: int
) -> None:
    """To the last bit with MKL on x86; elsewhere as close as the decoder's own sums."""
    images = image_inputs([screen(n, side, side) for n in range(6)], tiny.vision)
    together = FeatureCache(tiny.model).get(images)
    limit = 0.0 if torch.backends.mkl.is_available() else 1e-5
    for image, found in zip(images, together, strict=True):
        alone = FeatureCache(tiny.model).get([image])[0]
        torch.testing.assert_close(found.embeds, alone.embeds, atol=limit, rtol=0)
