"""Evidence that a person holds in her hand: a law, what is promised of it, and a program of its own that proves it."""

from noisette.certificates.certificate import Certificate, CertificateError, certify, check_promise

__all__ = ["Certificate", "CertificateError", "certify", "check_promise"]
