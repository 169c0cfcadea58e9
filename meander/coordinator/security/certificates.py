"""Certificates for a coordinator and its sites: an authority of one's own, and certificates that it signs.

The keys are elliptic (P-256), which every TLS library knows. A certificate is good for the names and addresses it was
made for; clients check them. Certificates from elsewhere do as well: nothing else knows how these were made.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from meander.model.errors import InputError

AUTHORITY_DAYS, DAYS = 3650, 825
LOCAL = ("localhost", "127.0.0.1", "::1")
EARLIER = datetime.timedelta(minutes=10)
"""Certificates begin a little in the past: clocks differ."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """A certificate with its key."""

    certificate: Path
    key: Path

    @staticmethod
    def of(directory: Path, name: str) -> CertificateFiles:
        return CertificateFiles(directory / f"{name}.pem", directory / f"{name}.key")


def make(directory: Path, names: Sequence[str], hosts: Sequence[str] = ()) -> list[CertificateFiles]:
    """Makes an authority unless there is one, and a certificate for each name; gives their files.

    Each is good for its name, for this machine and for `hosts`. One that is there already is an error: it may be
    trusted already.
    """
    for name in names:
        if not name or "/" in name or name.startswith(".") or name == "ca":
            raise InputError(f"{name!r} cannot be the name of a certificate; use the name of a host or a site")
        for path in (CertificateFiles.of(directory, name).certificate, CertificateFiles.of(directory, name).key):
            if path.exists():
                raise InputError("this is there already; remove it to make it anew", str(path))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        authority = _authority(CertificateFiles.of(directory, "ca"))
        return [_signed(CertificateFiles.of(directory, name), name, hosts, *authority) for name in names]
    except OSError as error:
        raise InputError(f"certificates cannot be made: {error.strerror}", str(directory)) from None


def _authority(files: CertificateFiles) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    if files.certificate.exists():
        try:
            key = serialization.load_pem_private_key(files.key.read_bytes(), None)
            certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
        except (OSError, ValueError) as error:
            raise InputError(f"this is no authority with its key: {error}", str(files.certificate)) from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise InputError("the key of this authority is not elliptic; sign with other tools", str(files.key))
        return certificate, key
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Meander authority")])
    builder = _begun(name, name, key, AUTHORITY_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs=True), critical=True)
    certificate = builder.sign(key, hashes.SHA256())
    _write(files, certificate, key)
    return certificate, key


def _signed(
    files: CertificateFiles,
    name: str,
    hosts: Sequence[str],
    authority: x509.Certificate,
    signer: ec.EllipticCurvePrivateKey,
) -> CertificateFiles:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = _begun(subject, authority.subject, key, DAYS)
    found = dict.fromkeys([name, *LOCAL, *hosts])
    builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(n) for n in found]), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs=False), critical=True)
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    public = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = builder.add_extension(public, critical=False)
    _write(files, builder.sign(signer, hashes.SHA256()), key)
    return files


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - EARLIER)
    builder = builder.not_valid_after(now + datetime.timedelta(days=days))
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=not signs, key_cert_sign=signs, crl_sign=signs, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write(files: CertificateFiles, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    """The key first, readable by its owner only from the beginning."""
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    descriptor = os.open(files.key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        file.write(text)
    files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
