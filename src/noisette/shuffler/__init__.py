"""The shuffler: a service between clients and a server that hides who sent what.

A client seals fragments (round, position, value) to the server's key and posts them to the shuffler, which knows the
sender and cannot read; the shuffler mixes the fragments of enough clients and forwards them to the server, which can
read and does not learn the sender. `Sender` is the client's side, `Shuffler` and `create_app` the service, `Receipt`
and `create_receiver` the server's side; `InProcess` joins all three for simulations. They need the packages of
``noisette[shuffler]``.
"""

from lazy_loader import attach_stub

from noisette._moved import names_of

_find, __dir__, __all__ = attach_stub(__name__, __file__)
__getattr__ = names_of(__name__, first=_find, renamed={"Layout": "PacketLayout"})
