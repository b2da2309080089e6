"""What runs where the person is: her ledger, her tokens, her queue, and the clients that send.

`Client` and `AsyncClient` answer a collector, `ShuffledClient` and `AsyncShuffledClient` through a shuffler. They need
httpx (``noisette[device]``) and none of the packages of a collector; signed tokens and sealed reports need cryptography
as well (``noisette[sealing]``).
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
