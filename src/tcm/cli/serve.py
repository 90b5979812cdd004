"""tcm app: finished runs as a page in the browser and a JSON API."""

import os
import sys

from tcm.app.packages import require_app_packages
from tcm.cli.arguments import OptionalText, Quiet, Runs
from tcm.cli.messages import with_options
from tcm.training.device import Device

TOKEN_VARIABLE = "TCM_APP_TOKEN"


def app(
    runs: Runs,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: OptionalText = None,
    sample: int = 100,
    device: Device = "auto",
    quiet: Quiet = False,
) -> int:
    """Serve a page that shows what runs make of images, and the same as a JSON API. Ctrl-C ends it.

    Drop images on the page, browse the target, or label a random sample for tcm audit. The page loads nothing from
    other sites. Several runs on the same data are shown side by side.

    Args:
        runs: Folders of finished runs of tcm train or tcm fit.
        host: Address to listen on. Any other than 127.0.0.1 lets in other computers, which need the token.
        port: Port to listen on; 0: any free one.
        token: Secret word of 16 letters or more that users must give. Default: none on 127.0.0.1, elsewhere a new
            one, which is printed. The variable TCM_APP_TOKEN keeps it out of the list of processes.
        sample: Number of images of the random sample for an audit, if tcm audit has not drawn one yet.
        device: Device to compute on; auto: the GPU if there is one.
        quiet: Print only the address, no progress.
    """
    require_app_packages()
    from tcm.app.server import ServerConfig, serve

    token = token or os.environ.get(TOKEN_VARIABLE) or None
    config = ServerConfig(host, port, token, device, sample)

    def say(text: str) -> None:
        print(with_options(text), flush=True)

    serve(runs, config, quiet, say)
    if not quiet:
        print("stopped; all labels are on disk", file=sys.stderr)
    return 0
