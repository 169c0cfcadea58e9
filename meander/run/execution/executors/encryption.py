"""Encryption of what executors and the parts server say: TLS, where Spark encrypts what its own processes do.

The certificate is the server's own, for one process; executors get it with the job, and trust nothing else.
"""

from __future__ import annotations

import datetime
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pyspark.sql import SparkSession

from meander.run.execution.executors.part import CERTIFIED

ENCRYPTING = ("spark.network.crypto.enabled", "spark.ssl.enabled", "spark.ssl.rpc.enabled")
"""Spark's settings by which its processes talk encrypted."""
DAYS = 365


class Certificate(NamedTuple):
    """A certificate with its key, both as PEM."""

    certificate: bytes
    key: bytes


def certificate_for(spark: SparkSession) -> Certificate | None:
    """One that was just made, if Spark's own traffic is encrypted."""
    settings = spark.sparkContext.getConf()
    return own_certificate() if any(settings.get(name, "false") == "true" for name in ENCRYPTING) else None


def own_certificate() -> Certificate:
    """A certificate that is signed with its own key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, CERTIFIED)])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(days=1))
    builder = builder.not_valid_after(now + datetime.timedelta(days=DAYS))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(CERTIFIED)]), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    plain = serialization.NoEncryption()
    text = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    return Certificate(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), text)
