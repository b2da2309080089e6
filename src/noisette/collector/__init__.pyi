"""Every public name of `noisette.collector`, once."""

from .storage.partitions import campaign_periods as campaign_periods
from .storage.partitions import split_campaign as split_campaign
from .storage.store import Store as Store
from .web.service import create_app as create_app
