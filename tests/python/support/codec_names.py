"""The codecs of the library, for tests of any codec."""

from __future__ import annotations

import narrowcast

# Those that restore every bit, so that results can be compared with the input.
EXACT = tuple(codec.name for codec in narrowcast.codecs() if codec.exact)
