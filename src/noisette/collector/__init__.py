"""The collector: a service that asks the questions of surveys, loses and doubles no report, and shows what they say.

`create_app` serves, `Store` keeps, `split_campaign` cuts what is kept into partitions. They need the packages of
``noisette[collector]``. What a device needs is in `noisette.device`, what is asked in `noisette.survey`.
"""

from lazy_loader import attach_stub

from noisette._moved import names_of

_find, __dir__, __all__ = attach_stub(__name__, __file__)
__getattr__ = names_of(__name__, "noisette.device", "noisette.survey.campaigns", first=_find)
