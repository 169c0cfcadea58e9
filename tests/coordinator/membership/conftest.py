"""The same session timeout as tests of the API have."""

from tests.api.conftest import until  # noqa: F401 - a fixture
