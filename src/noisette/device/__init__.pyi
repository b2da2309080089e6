"""Every public name of `noisette.device`, once."""

from .client import AsyncClient as AsyncClient
from .client import Client as Client
from .sealed import AsyncShuffledClient as AsyncShuffledClient
from .sealed import ShuffledClient as ShuffledClient
