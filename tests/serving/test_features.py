"""Image features are computed once, and kept only as far as memory allows."""

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
