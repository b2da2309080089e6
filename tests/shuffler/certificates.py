"""An authority of our own, a certificate for this machine, and keys of nodes, for tests."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID


def _certificate(name: str, key: ec.EllipticCurvePrivateKey, issuer: str, signer: ec.EllipticCurvePrivateKey) -> bytes:
    now = datetime.datetime.now(datetime.UTC)
    own = name == issuer
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=own, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if own:
        flags = dict.fromkeys(
            ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False
        )
        usage = x509.KeyUsage(**flags, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False)
        builder = builder.add_extension(usage, critical=True)
    else:
        here = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(here), critical=False)
    return builder.sign(signer, hashes.SHA256()).public_bytes(Encoding.PEM)


def make_certificates(folder: Path) -> None:
    """Write ca.pem, and cert.pem and key.pem for 127.0.0.1, which ca.pem signed."""
    authority, own = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    (folder / "ca.pem").write_bytes(_certificate("test authority", authority, "test authority", authority))
    (folder / "cert.pem").write_bytes(_certificate("localhost", own, "test authority", authority))
    (folder / "key.pem").write_bytes(own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def make_node_key(folder: Path) -> None:
    """Write a node's key for Flower, node and node.pub."""
    key = ec.generate_private_key(ec.SECP384R1())
    (folder / "node").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    (folder / "node.pub").write_bytes(public + b" node\n")
