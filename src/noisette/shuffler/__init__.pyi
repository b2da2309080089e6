"""Every public name of `noisette.shuffler`, once."""

from .clients import Clients as Clients
from .clients import new_secret as new_secret
from .forwarding import InProcess as InProcess
from .layout import PacketLayout as PacketLayout
from .layout import shuffled_blocks as shuffled_blocks
from .receipt import Receipt as Receipt
from .receiver import create_receiver as create_receiver
from .receiver import receiving as receiving
from .sealing import PublicKey as PublicKey
from .sealing import ServerKey as ServerKey
from .sender import Sender as Sender
from .service import create_app as create_app
from .store import Shuffler as Shuffler
from .wire import Round as Round
