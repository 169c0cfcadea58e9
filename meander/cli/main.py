"""The command line. Each group is a module beside this file, which turns errors into exit codes.

Exit codes: 0 done, 1 a failure, 2 something the user can correct (bad input or usage).
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated, Any

import typer

from meander.cli.commands import CommandTable
from meander.model.errors import InputError, OutsideError

USER_ERROR, OUTSIDE_ERROR = 2, 1


class App(typer.Typer):
    """A typer application that ends in one clear sentence when the input is bad."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().__call__(*args, **kwargs)
        except (InputError, OutsideError) as error:
            typer.secho(f"error: {error}", err=True, fg=typer.colors.RED if sys.stderr.isatty() else None)
            sys.exit(USER_ERROR if isinstance(error, InputError) else OUTSIDE_ERROR)


app = App(
    name="meander",
    cls=CommandTable,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"meander {version('meander')}")
        raise typer.Exit


@app.callback()
def main(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Continuous queries on Spark that keep running while the infrastructure under them moves.

    Write a query in SQL or Python and a topology in YAML, then see the effect with `meander explain`.
    """
