"""Certificates: the law of a mechanism and what is promised of it, which a program that stands alone proves."""

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
