"""The Python process of a slot's source: it answers Spark at once and imports the rest afterwards.

Spark waits ten seconds for the process to connect, and no setting makes that longer. On a busy machine Python takes
that long to import PySpark and Arrow, the more so from the archive that Spark puts first on the path, where nothing is
compiled; the slot would start over, at the expense of those that are about to start. So this file, which Spark runs in
place of Python, imports nothing but a few modules of the standard library before it connects. Other modules than the
source's are run as Python would.
"""

import sys

if __name__ == "__main__":
    del sys.path[0]  # this file's folder: its neighbours are no top-level modules

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, cast

SOURCE_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
SOCKET_PATH, PORT, SECRET = (f"PYTHON_WORKER_FACTORY_{name}" for name in ("SOCK_PATH", "PORT", "SECRET"))
_NUMBER = struct.Struct(">i")


def connected() -> IO[bytes]:
    """A connection to Spark that has shown its secret and told the process's number, as Spark's own workers do."""
    path = os.environ.get(SOCKET_PATH)
    if path is not None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(path)
    else:
        host = "::1" if os.environ.get("SPARK_PREFER_IPV6", "false").lower() == "true" else "127.0.0.1"
        connection = socket.create_connection((host, int(os.environ[PORT])))
    file = connection.makefile("rwb", int(os.environ.get("SPARK_BUFFER_SIZE", "65536")))
    if path is None:
        secret = os.environ[SECRET].encode()
        file.write(_NUMBER.pack(len(secret)) + secret)
        file.flush()
        (size,) = _NUMBER.unpack(file.read(_NUMBER.size))
        if file.read(size) != b"ok":
            raise ConnectionRefusedError("Spark does not take the secret that it gave this process")
    file.write(_NUMBER.pack(os.getpid()))
    file.flush()
    return cast(IO[bytes], file)


def compiled_first(path: list[str]) -> list[str]:
    """Spark's archives go behind the folder where PySpark is installed, if it is: modules there are compiled already.

    >>> compiled_first(["/spark/python/lib/pyspark.zip", "/my/modules"])
    ['/spark/python/lib/pyspark.zip', '/my/modules']
    """
    if not any(os.path.isfile(os.path.join(folder, "pyspark", "version.py")) for folder in path):
        return path
    archives = [p for p in path if p.endswith(".zip") and os.path.basename(p).startswith(("pyspark", "py4j"))]
    return [*(p for p in path if p not in archives), *archives]


def run_source(file: IO[bytes]) -> None:
    """Runs Spark's own module over the connection that is there."""
    import runpy

    sys.path[:] = compiled_first(sys.path)
    from pyspark import worker_util

    @contextmanager
    def there(timeout: int | None = -1) -> Iterator[IO[bytes]]:
        try:
            yield file
        finally:
            file.close()

    worker_util.get_sock_file_to_executor = there
    runpy.run_module(SOURCE_RUNNER, run_name="__main__", alter_sys=True)


def main(arguments: list[str]) -> None:
    if arguments == ["-m", SOURCE_RUNNER]:
        run_source(connected())
    else:
        os.execv(sys.executable, [sys.executable, *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
