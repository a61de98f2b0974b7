"""Write deploy/grafana/.

python -m tools.grafana    # what `make grafana` runs
"""

from tools.grafana.boards import BOARDS
from tools.grafana.model import FOLDER, text_of


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for board in BOARDS:
        (FOLDER / f"{board.name}.json").write_text(text_of(board))


if __name__ == "__main__":
    main()
