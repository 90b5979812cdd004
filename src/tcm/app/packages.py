"""Whether the packages of the extra `app` are installed."""

import importlib

from tcm.errors import InputError, printable

PACKAGES = ("fastapi", "uvicorn", "python_multipart")
EXTRA = "pip install 'tcm[app]'"


def require_app_packages() -> None:
    """An error if a package that the server needs is not installed."""
    for name in PACKAGES:
        try:
            importlib.import_module(name)
        except ImportError as error:
            found = f"the page needs the package {name} ({printable(error)})"
            raise InputError(f"{found}; install it with {EXTRA}") from error
