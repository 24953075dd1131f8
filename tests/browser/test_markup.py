"""Whatever is said, printed or named stays text: no markup of it is made, and no script of it runs."""

from pathlib import Path

from playwright.async_api import expect

from tests.acceptance.conftest import RunningServer
from tests.support.api_client import api_client
from tests.support.browser_driver import WAIT_MS, BrowserUser, ChatPage, sign_in

TRICKS = (
    "<script>alert('s1')</script>",
    "<img src=x onerror=alert('s2')>",
    "<svg onload=alert('s3')><animate onbegin=alert('s4') attributeName=x dur=1s>",
    "<iframe srcdoc=\"<script>parent.alert('s5')</script>\"></iframe>",
    "</textarea></pre></title><script>alert('s6')</script>",
    "[press](javascript:alert('s7')) <a href=\"javascript:alert('s8')\">press</a>",
    "![x](http://127.0.0.1:9/leak-by-image) <img src=http://127.0.0.1:9/leak>",
    "<style>@import 'http://127.0.0.1:9/leak-by-style';*{background:url(http://127.0.0.1:9/leak)}</style>",
    "{{constructor.constructor('alert(1)')()}} ${alert('s9')} <%= alert('s10') %>",
    "<form action=http://127.0.0.1:9/leak><button autofocus onfocus=alert('s11')>x</button></form>",
    "\u202e\u2066evil\u2069 <math><mtext></p><img src=1 onerror=alert('s12')>",
)
MARKED = (
    "script:not([src]), iframe, img, svg:not(.icon), style, form form, math, object, embed,"
    " a[href^='javascript']"
)
"""Whatever text could turn into; the icons are the page's own."""


async def test_no_words_of_anybody_become_markup(
    visitor: BrowserUser, server: RunningServer, tmp_path: Path
) -> None:
    wicked = "\n".join(TRICKS)
    (tmp_path / "wicked").write_text(wicked)
    named = tmp_path / "<img src=x onerror=alert('f1')>.txt"
    named.write_text(wicked)
    async with api_client(server.address) as api:
        titled = await api.create_session(title=TRICKS[1])
        chat = ChatPage(await sign_in(visitor, server.link))
        await chat.page.goto(f"{server.address}#{titled}")
        await expect(chat.page.get_by_role("heading", name=TRICKS[1])).to_be_visible(timeout=WAIT_MS)
        await chat.send(wicked)  # Which the model repeats.
        await expect(chat.log.get_by_text("alert('s12')")).to_have_count(2, timeout=WAIT_MS)
        # As a command, as what it prints, as the name of a file, and as what the model makes of it.
        await chat.send(f"run cat '{tmp_path}/wicked'; ls {tmp_path}; : {TRICKS[1]!r}")
        await chat.wait_for_approval()
        await chat.allow.click()
        await chat.wait_for_text("It said:")
        for _ in ("as it came", "as it is read again"):
            await chat.wait_for_text("It said:")
            await chat.expand_all()
            await expect(chat.log.get_by_text("alert('s12')")).to_have_count(4, timeout=WAIT_MS)
            await expect(chat.log.get_by_text("alert('f1')").first).to_be_visible(timeout=WAIT_MS)
            assert await chat.log.locator(MARKED).count() == 0
            await chat.page.reload()
        assert [each for each in visitor.requested_urls if "leak" in each] == []
