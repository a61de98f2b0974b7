"""The screen of `slb top`. A thread reads the stream of changes; all else is the event loop's."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar
from urllib.parse import quote

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static

from slb.backoff import Backoff
from slb.cli.client import ApiClient, ApiError
from slb.cli.draining import left_in
from slb.cli.explain import explained
from slb.cli.fleet_state import FleetState
from slb.cli.top_views import VIEWS, Row, alerts, decided, headline, plain_line, shown

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 5.0
_ALERT_LINES = 3
_LEVELS = {"error": "red", "warning": "yellow"}


class TopApp(App[None]):
    """`client` calls one instance, which shows all. What it costs is one pass over the state for each event, one a
    second at most, and a write for each cell that is different."""

    CSS = """
    #headline { height: 1; background: $primary-background; text-style: bold; }
    #alerts { height: auto; max-height: 3; }
    #tabs { height: 1; }
    #wanted { display: none; height: 3; }
    #wanted.shown { display: block; }
    #empty { display: none; padding: 1 2; }
    #empty.shown { display: block; }
    DataTable { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(number), f"view({number - 1})", show=False) for number in range(1, len(VIEWS) + 1)),
        Binding("tab", "next_view", "Next", priority=True),
        Binding("s", "sort", "Sort"),
        Binding("r", "reverse", "Reverse"),
        Binding("slash", "filter", "Filter"),
        Binding("f", "freeze", "Freeze"),
        Binding("e", "explain", "Explain"),
        Binding("d", "drain", "Drain"),
        Binding("q", "quit", "Quit"),
        Binding("escape", "unfilter", show=False),
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, client: ApiClient) -> None:
        super().__init__()
        self._client = client
        self._state = FleetState()
        self._trouble = ""
        self._frozen = False
        self._view = 0
        self._columns = [0] * len(VIEWS)
        self._reversed = [False] * len(VIEWS)
        self._wanted = ""
        self._drawn: list[Row] = []
        self._drawn_view = -1
        self._ended = threading.Event()

    def compose(self) -> ComposeResult:
        yield Static(id="headline", markup=False)
        yield Static(id="alerts", markup=False)
        yield Static(id="tabs", markup=False)
        yield Input(id="wanted", placeholder="text that a row must have; Escape shows all")
        yield Static(id="empty", markup=False)
        yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        self._draw()
        self.query_one(DataTable).focus()
        threading.Thread(target=self._follow, name="fleet-events", daemon=True).start()

    def on_unmount(self) -> None:
        self._ended.set()

    # -- the stream

    def _follow(self) -> None:
        """In a thread of its own, until the screen ends: read the stream, and make it anew where it breaks."""
        backoff = Backoff()
        while not self._ended.is_set():
            trouble = "the instance has ended the stream"
            try:
                for name, data in self._client.events("/fleet/events"):
                    if self._ended.is_set():
                        return
                    self.call_from_thread(self._came, name, data)
            except ApiError as error:
                trouble = str(error)
            except RuntimeError:  # the screen has ended meanwhile
                return
            if not self._ended.is_set():
                self.call_from_thread(self._broke, trouble)
            self._ended.wait(backoff.pause(time.monotonic(), _FIRST_PAUSE, _LONGEST_PAUSE, is_calm=False))

    def _came(self, name: str, data: Any) -> None:
        self._state.apply(name, data)
        self._trouble = ""
        if not self._frozen:
            self._draw()

    def _broke(self, trouble: str) -> None:
        self._trouble = trouble
        self._draw_head()

    # -- drawing

    def _draw(self) -> None:
        self._draw_head()
        view = VIEWS[self._view]
        rows, beyond = shown(view, self._state, self._wanted, self._columns[self._view], self._reversed[self._view])
        self._draw_tabs(beyond)
        self._draw_empty(bool(rows))
        table: DataTable[Text] = self.query_one(DataTable)
        if self._drawn_view == self._view and [row.key for row in rows] == [row.key for row in self._drawn]:
            self._change_cells(table, rows)
        else:
            self._fill(table, rows)
        self._drawn, self._drawn_view = rows, self._view

    def _draw_head(self) -> None:
        head = headline(self._state, self._trouble, self._frozen)
        self.query_one("#headline", Static).update(Text(head, style="red" if self._trouble else ""))
        lines = Text("\n").join(
            Text(text, style=_LEVELS.get(level, ""), no_wrap=True, overflow="ellipsis")
            for level, text in alerts(self._state, _ALERT_LINES)
        )
        self.query_one("#alerts", Static).update(lines)

    def _draw_tabs(self, beyond: int) -> None:
        line = Text()
        for number, view in enumerate(VIEWS):
            line.append(f" {number + 1} {view.name} ", style="reverse" if number == self._view else "")
        order = "↑" if self._reversed[self._view] else "↓"
        line.append(f"  {order} {VIEWS[self._view].columns[self._columns[self._view]]}", style="dim")
        if self._wanted:
            line.append(f"  /{self._wanted}")
        if beyond:
            line.append(f"  and {beyond} more (/ filters)")
        self.query_one("#tabs", Static).update(line)

    def _draw_empty(self, has_rows: bool) -> None:
        """Once the state is known, why there is nothing to see."""
        empty = self.query_one("#empty", Static)
        empty.set_class(bool(self._state.own) and not has_rows, "shown")
        empty.update(f"No row has {self._wanted!r}: Escape shows all." if self._wanted else VIEWS[self._view].empty)

    def _fill(self, table: "DataTable[Text]", rows: Sequence[Row]) -> None:
        """The cursor stays on its row, where that is still there."""
        chosen = self._chosen()
        table.clear(columns=self._drawn_view != self._view)
        view = VIEWS[self._view]
        if self._drawn_view != self._view:
            for title in view.columns:
                table.add_column(Text(title, justify="right" if title in view.right else "left"), key=title)
        for row in rows:
            table.add_row(*self._cells(row), key=row.key)
        keys = [row.key for row in rows]
        if chosen in keys:
            table.move_cursor(row=keys.index(chosen))

    def _change_cells(self, table: "DataTable[Text]", rows: Sequence[Row]) -> None:
        titles = VIEWS[self._view].columns
        for old, new in zip(self._drawn, rows, strict=True):
            if (old.cells, old.style) == (new.cells, new.style):
                continue
            for title, cell in zip(titles, self._cells(new), strict=True):
                table.update_cell(new.key, title, cell, update_width=True)

    def _cells(self, row: Row) -> list[Text]:
        view = VIEWS[self._view]
        return [
            Text(cell, style=row.style, justify="right" if title in view.right else "left", no_wrap=True)
            for title, cell in zip(view.columns, row.cells, strict=True)
        ]

    def _chosen(self) -> str:
        """The key of the row with the cursor; empty where there is none."""
        table: DataTable[Text] = self.query_one(DataTable)
        row = table.cursor_row
        return self._drawn[row].key if 0 <= row < len(self._drawn) and self._drawn_view == self._view else ""

    # -- keys

    def action_view(self, number: int) -> None:
        self._view = number
        self._draw()

    def action_next_view(self) -> None:
        self.action_view((self._view + 1) % len(VIEWS))

    def action_sort(self) -> None:
        self._columns[self._view] = (self._columns[self._view] + 1) % len(VIEWS[self._view].columns)
        self._draw()

    def action_reverse(self) -> None:
        self._reversed[self._view] = not self._reversed[self._view]
        self._draw()

    def action_freeze(self) -> None:
        self._frozen = not self._frozen
        self._draw()

    def action_filter(self) -> None:
        wanted = self.query_one("#wanted", Input)
        wanted.add_class("shown")
        wanted.focus()

    def action_unfilter(self) -> None:
        self.query_one("#wanted", Input).value = ""
        self._leave_filter()

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.id == "wanted":
            self._wanted = event.value
            self._draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input.id == "wanted":
            self._leave_filter()

    def _leave_filter(self) -> None:
        self.query_one("#wanted", Input).remove_class("shown")
        self.query_one(DataTable).focus()

    def action_explain(self) -> None:
        """Of the route with the cursor, why its last request went where it went; else of a request by its id."""
        chosen = self._chosen()
        if VIEWS[self._view].name == "routes" and chosen:
            self._ask(lambda: decided(self._client.call("GET", f"/routes{quote(chosen)}")))
            return
        self.push_screen(Question("The id of a request (X-Request-Id of its answer)"), self._explain_request)

    def _explain_request(self, id_: str | None) -> None:
        if id_:
            self._ask(lambda: self._explained(id_))

    def _explained(self, id_: str) -> Sequence[str]:
        found = self._client.call("GET", f"/explain/{quote(id_, safe='')}")["found"]
        return [f"{name:<11} {value}" for each in found for name, value in explained(each)]

    def action_drain(self) -> None:
        chosen = self._chosen()
        found = self._state.of("upstreams").get(chosen)
        if VIEWS[self._view].name != "upstreams" or found is None:
            self.notify("d drains the upstream with the cursor: press 2 first")
            return
        drain = not found["drain"]
        what = f"{'Drain' if drain else 'Undrain'} {plain_line(chosen)}? y or n"
        self.push_screen(Confirm(what), lambda yes: self._drain(chosen, drain) if yes else None)

    def _drain(self, member: str, drain: bool) -> None:
        def ask() -> Sequence[str]:
            answer = self._client.call("PATCH", f"/upstreams/{member}", {"drain": drain})
            done = f"{member} {'drains: nothing new is sent there' if drain else 'takes requests again'}"
            return [done, *(left_in(route, "answers") for route in answer["last_of"] if drain)]

        self._ask(ask)

    def _ask(self, ask: Callable[[], Sequence[str]]) -> None:
        """Call the API in a thread; what it says, or why it refuses, stands on a screen until a key."""

        def work() -> None:
            try:
                lines = ask()
            except ApiError as error:
                lines = [str(error)]
            self.call_from_thread(self.push_screen, Shown([plain_line(line) for line in lines]))

        threading.Thread(target=work, name="fleet-ask", daemon=True).start()


class Shown(ModalScreen[None]):
    """Lines over the screen, until a key that ends it: a terminal's own answers may come as keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,space,e,q", "leave", show=False)]

    CSS = """
    Shown { align: center middle; }
    #lines { width: 90%; height: auto; max-height: 90%; border: round $primary; padding: 0 1; }
    """

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__()
        self._lines = lines

    def compose(self) -> ComposeResult:
        yield Static("\n".join(self._lines), id="lines", markup=False)

    def action_leave(self) -> None:
        self.dismiss()


class Confirm(ModalScreen[bool]):
    """A question that `y` says yes to."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", show=False),
        Binding("n,escape,enter,q", "answer(False)", show=False),
    ]

    CSS = """
    Confirm { align: center middle; }
    #question { width: auto; max-width: 90%; border: round $warning; padding: 0 1; }
    """

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        yield Static(self._question, id="question", markup=False)

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)


class Question(ModalScreen[str | None]):
    """A line to type; Escape leaves it."""

    CSS = "Question { align: center middle; } Input { width: 80%; }"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", show=False)]

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what = what

    def compose(self) -> ComposeResult:
        yield Input(placeholder=self._what, max_length=256)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(event.value.strip())

    def action_leave(self) -> None:
        self.dismiss(None)
