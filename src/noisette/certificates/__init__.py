"""Evidence that a person holds in her hand: a law, what is promised of it, and a program of its own that proves it."""

from noisette.certificates.certificate import Certificate, CertificateError, certify, check_promise
from noisette.certificates.runs import FederatedRun, TrainingRun, run_from_spec

__all__ = [
    "Certificate",
    "CertificateError",
    "FederatedRun",
    "TrainingRun",
    "certify",
    "check_promise",
    "run_from_spec",
]
