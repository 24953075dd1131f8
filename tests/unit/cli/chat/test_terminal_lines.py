"""Lines of the terminal: safe text, complete Markdown blocks, tool calls, file diffs."""

import json

import pytest

from holdfast.cli.chat.markdown_blocks import complete_length
from holdfast.cli.chat.render import Renderer, StyledPieces, format_arguments, format_duration, tool_line
from holdfast.cli.chat.response_data import (
    FeedUpdate,
    QuestionData,
)
from holdfast.cli.chat.safe_text import json_line, one_line, safe
from holdfast.cli.chat.view_model import (
    ConversationViewModel,
    FinishedToolCall,
    MarkdownBlock,
)
from holdfast.domain.events import facts as f
from holdfast.domain.secrets import MaskFunction, SecretMask
from tests.unit.cli.chat.test_terminal_view import (
    CALL,
    ONE,
    RUN,
    SESSION,
    accepted,
    live_text,
    plain,
    printed_blocks,
)


class TestSafeText:
    @pytest.mark.parametrize(
        "steering", ["\x1b[2J", "\x9b31m", "\x07", "\x08", "\r", "\x00", "\x7f", "\u202e", "\u2066"]
    )
    def test_control_characters_are_removed(self, steering: str) -> None:
        assert safe(f"a{steering}b").startswith("a�")
        assert not set(safe(steering)) & {steering[0]}

    @pytest.mark.parametrize("unseen", "\u200b\u200d\u2060\u00ad\u3164\U000e0041\ufeff")
    def test_invisible_characters_are_replaced(self, unseen: str) -> None:
        assert safe(f"rm{unseen}dir") == "rm\ufffddir"

    def test_joiners_that_scripts_and_emoji_need_are_kept(self) -> None:
        family, word = "\U0001f468\u200d\U0001f469", "\u0645\u06cc\u200c\u062e"
        assert safe(f"{family} {word}") == f"{family} {word}"

    def test_markdown_entities_are_sanitised_and_links_show_their_targets(self) -> None:
        text = "turned &#x202e; over &#8203; [bank.example](https://evil.example/x)"
        printed = Renderer(SecretMask().mask).render_items([MarkdownBlock(text)], 100)
        assert not {"\u202e", "\u200b"} & set(printed)
        assert "turned \ufffd over \ufffd bank.example (https://evil.example/x)" in plain(printed)
        assert "\x1b]8" not in printed

    def test_newlines_are_kept_and_tabs_become_spaces(self) -> None:
        assert safe("a\n\tb\r\nc") == "a\n    b\nc"

    def test_one_line_is_truncated_with_an_ellipsis(self) -> None:
        assert one_line("a  b\nc", 10) == "a b c"
        assert one_line("abcdef", 4) == "abc…"

    def test_json_line_escapes_control_characters(self) -> None:
        assert json_line({"a": "\x1b\x9b\x7fé"}) == '{"a":"\\u001b\\u009b\\u007fé"}'


class TestCompleteBlocks:
    @pytest.mark.parametrize(
        ("text", "done"),
        [
            ("one para", ""),
            ("one para\n", ""),
            ("one para\n\ntwo", "one para\n\n"),
            ("one\n\ntwo\n\n", "one\n\ntwo\n\n"),
            ("see\n\n```py\na = 1\n\nb = 2\n", "see\n\n"),
            ("```py\na = 1\n\nb = 2\n```\nmore", "```py\na = 1\n\nb = 2\n```\n"),
            ("````\n```\n\ninner\n```\n", ""),
        ],
    )
    def test_a_block_ends_at_an_empty_line_outside_code(self, text: str, done: str) -> None:
        assert text[: complete_length(text)] == done

    def test_an_overlong_block_is_shown_in_parts(self) -> None:
        text = "line\n" * 5_000
        assert complete_length(text + "open") == len(text)


class TestToolLines:
    def test_a_shell_command_is_shown_verbatim_and_other_arguments_as_name_and_value(self) -> None:
        assert tool_line("shell", '{"command": "ls -la"}', 60) == "shell  ls -la"
        assert tool_line("list_files", "{}", 60) == "list_files"
        assert (
            format_arguments("write_file", '{"path": "a", "text": "b", "n": 1}') == "path: a\ntext: b\nn: 1"
        )
        assert tool_line("odd", "not json", 60) == "odd  not json"

    def test_a_tool_line_is_short_and_sanitised(self) -> None:
        line = tool_line("shell", '{"command": "echo \\u001b[31m' + "x" * 500 + '"}', 200)
        assert len(line) < 100 and line.endswith("…") and "\x1b" not in line

    def test_a_tool_line_shows_outcome_duration_and_last_output_lines(self) -> None:
        tool = FinishedToolCall(
            "shell", '{"command": "make"}', "failed", 14_200, "1\n2\n3\n4\nError\x1b[31m\n"
        )
        shown = plain(Renderer(str).render_items([tool], 80))
        assert shown.splitlines() == ["  ✗ shell  make · 14 s", "    3", "    4", "    Error�[31m"]

    @pytest.mark.parametrize(("ms", "expected"), [(300, "0.3 s"), (14_200, "14 s"), (125_000, "2 min 5 s")])
    def test_durations(self, ms: int, expected: str) -> None:
        assert format_duration(ms) == expected


def pieces_of(name: str, arguments: dict[str, object], mask: MaskFunction = str) -> StyledPieces:
    """Draw a call that waits to be allowed: its question first, its keys last."""
    conversation = ConversationViewModel(SESSION)
    given = json.dumps(arguments)
    conversation.apply_feed_update(
        FeedUpdate(None, (QuestionData("s_1", RUN, "approval", "", CALL, name, given),))
    )
    return [
        (style, text.strip("\n")[2:]) for style, text in Renderer(mask).render_live(conversation, 80, 24, 0)
    ]


class TestFileDiff:
    def test_write_file_is_shown_as_added_lines(self) -> None:
        assert pieces_of("write_file", {"path": "a.md", "content": "One\n\nTwo\n"})[:-1] == [
            ("class:question", "Write a.md?"),
            ("class:added", "  + One"),
            ("class:added", "  + "),
            ("class:added", "  + Two"),
        ]
        assert pieces_of("write_file", {"path": "a.md", "content": ""})[1] == (
            "class:dim",
            "  (an empty file)",
        )

    def test_edit_file_is_shown_as_removed_and_added_lines(self) -> None:
        given = {"path": "a.md", "old_text": "One", "new_text": "Two\nThree", "replace_all": True}
        assert pieces_of("edit_file", given)[:-1] == [
            ("class:question", "Change a.md?"),
            ("class:command", "  replace_all: true"),
            ("class:removed", "  - One"),
            ("class:added", "  + Two"),
            ("class:added", "  + Three"),
        ]

    def test_lines_that_do_not_fit_are_counted(self) -> None:
        drawn = pieces_of("write_file", {"path": "a.md", "content": "line\n" * 52})
        assert len(drawn) == 1 + 12 + 1 + 1
        assert drawn[-2] == ("class:dim", "  … 40 more lines; /status shows all")

    def test_an_approval_shows_the_full_path(self) -> None:
        path = "deep/" * 60 + "a.md"
        shown = "".join(text.strip() for _, text in pieces_of("write_file", {"path": path, "content": "x"}))
        assert path in shown.replace(" ", "").replace("\n", "")

    def test_a_file_diff_masks_secrets_and_control_characters(self) -> None:
        given = {"path": "a.md", "content": "open-sesame-open\x1b[2J"}
        assert ("class:added", "  + [secret]�[2J") in pieces_of(
            "write_file", given, SecretMask(["open-sesame-open"]).mask
        )

    def test_truncated_question_arguments_are_completed_from_the_events(self) -> None:
        conversation, given = (
            ConversationViewModel(SESSION),
            json.dumps({"path": "a.md", "content": "line\n" * 2_000}),
        )
        intended = f.ToolIntended(RUN, 1, 2, ONE, CALL, "write_file", given, "idempotent")
        printed_blocks(conversation, accepted("go"), f.RunStarted(RUN), intended)
        cut = QuestionData("s_1", RUN, "approval", "", CALL, "write_file", given[:100], True)
        conversation.apply_feed_update(FeedUpdate(None, (cut,)))
        assert live_text(conversation).startswith("  Write a.md?\n    + line\n    + line\n")
