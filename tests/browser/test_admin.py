"""The admin page in a real browser: the way in, every section, and that what is changed there acts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

import httpx
import pytest
from playwright import sync_api
from playwright.sync_api import expect

from appliance.base.paths import Paths
from tests.browser.conftest import HOST, page_url
from tests.browser.driver import Chat, settled
from tests.browser.test_looks import serious
from tests.system.program import Program, command

PASSWORD = "correct horse"
SECTIONS = {
    "en-US": ("Overview", "Address", "Models", "Settings", "Answers", "Access", "Log & restart"),
    "zh-CN": ("概览", "地址", "模型", "设置", "回答", "访问", "日志与重启"),
}


class Admin:
    """One open admin page, used the way an owner would."""

    def __init__(self, page: sync_api.Page, app: Program) -> None:
        self.page = page
        self.app = app
        self.requests: list[str] = []
        self.errors: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.set_default_timeout(15_000)

    def open(self) -> Admin:
        """Log in, if need be, and wait for the numbers."""
        self.page.goto(page_url(self.app) + "admin")
        if self.page.locator("#password").count():
            self.page.fill("#password", PASSWORD)
            self.page.press("#password", "Enter")
        return self.ready()

    def ready(self) -> Admin:
        expect(self.page.locator("#numbers .cards")).to_be_attached()
        return self

    def section(self, name: str) -> Admin:
        self.page.locator(f'#sections button[role=tab][data-tab-id="{name}"]').click()
        expect(self.page.locator(f"#section-{name}")).to_be_visible()
        return self

    def number(self, name: str) -> str:
        return self.page.locator(f'#numbers [data-number="{name}"] .value').inner_text()

    def set(self, key: str, value: str) -> None:
        """Type a setting."""
        field = self.page.locator(f"#set-{key}")
        if field.evaluate("field => field.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)

    def save(self) -> str:
        """Press Save; gives what the page then says."""
        with self.page.expect_response(re.compile(r"/admin/settings$")):
            self.page.click("#save-settings")
        expect(self.page.locator("#save-bar[data-kind=fine], #save-bar[data-kind=problem]")).to_be_visible()
        return self.page.inner_text("#save-said")

    def problem(self, key: str) -> sync_api.Locator:
        return self.page.locator(f"#problem-{key}")

    def pick(self, elem_id: str, text: str) -> None:
        """Choose from a list."""
        self.page.locator(f"#{elem_id} label", has_text=text).click()


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """A program whose admin page asks for a password."""
    data_dir = tmp_path_factory.mktemp("office")
    command(data_dir, "set-admin-password", typed=PASSWORD + "\n")
    program = Program(data_dir, backend="echo", allowed_hosts=HOST, quick_answers=True)
    yield program.wait_ready()
    program.close()


@pytest.fixture
def new_page(browser: sync_api.Browser) -> Iterator[object]:
    contexts: list[sync_api.BrowserContext] = []

    def open_page(**options: object) -> sync_api.Page:
        contexts.append(browser.new_context(**({"locale": "en-US"} | options)))
        return contexts[-1].new_page()

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture
def admin(office: Program, new_page) -> Iterator[Admin]:
    opened = Admin(new_page(), office).open()
    yield opened
    assert opened.errors == []


def test_until_a_password_is_set_only_this_pc_gets_in(programs, new_page):
    app = programs.get()
    page = new_page()
    page.goto(page_url(app) + "admin")
    expect(page.locator("main")).to_contain_text("There is no admin password yet")
    expect(page.locator("form")).to_be_hidden()
    page.goto(f"http://127.0.0.1:{app.port}/admin")
    expect(page.locator("main")).to_contain_text("by the link it has written into its window")
    page.goto(app.owners_link("/admin"))
    expect(page.locator("#numbers .note")).to_contain_text("There is no admin password yet")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "light"), (1280, "dark"), (360, "dark")])
@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_from_the_login_through_every_section(office, new_page, tmp_path, locale, width, scheme):
    page = new_page(locale=locale, viewport={"width": width, "height": 800}, color_scheme=scheme)
    admin = Admin(page, office)
    page.goto(page_url(office) + "admin")
    page.fill("#password", "wrong one")
    page.press("#password", "Enter")
    expect(page.locator("#problem")).to_be_visible()
    admin.open()
    tabs = page.locator("#sections button[role=tab]")
    expect(tabs).to_have_text(list(SECTIONS[locale]))
    for name in ("overview", "address", "models", "settings", "answers", "access", "log"):
        admin.section(name)
        expect(page.locator(f"#section-{name} h2, #section-{name} .cards").first).to_be_visible()
        page.wait_for_function("() => document.documentElement.scrollWidth <= window.innerWidth")
        if scheme == "light" or locale == "en-US":  # colours are the same in both languages
            assert (name, serious(admin)) == (name, [])
        page.screenshot(path=str(tmp_path / f"{name}.png"), full_page=True)
    ours = (page_url(office), "data:", "blob:")
    assert [url for url in admin.requests if not url.startswith(ours)] == []
    assert admin.errors == []


def test_the_other_language_opens_the_same_section(admin):
    admin.section("settings")
    admin.page.click("#top a[lang=zh]")
    expect(admin.page.locator("#settings-form .setting").first).to_be_visible()
    assert admin.page.url.endswith("/admin/zh/#settings")
    assert admin.page.evaluate("document.documentElement.lang") == "zh-CN"


def test_the_numbers_follow_what_happens_without_a_reload(admin, office, visit):
    settled(lambda: admin.number("people"), "0")
    chat = visit(office)
    chat.send("This takes a while to write. " * 10)
    chat.wait_writing_text()
    settled(lambda: admin.number("writing"), "1")
    assert admin.number("people") == "1"
    chat.wait_answered()
    settled(lambda: admin.number("writing"), "0")
    expect(admin.page.locator("#charts svg").first).to_be_visible(timeout=30_000)


def test_a_notice_comes_onto_pages_that_are_open_and_goes_again(admin, office, visit):
    chat = visit(office)
    admin.section("settings")
    admin.set("notice", "Lunch at 12 <b>today</b>")
    assert admin.save() == "Saved. It acts already."
    expect(chat.page.locator("#header .notice")).to_have_text("Lunch at 12 <b>today</b>", timeout=30_000)
    admin.set("notice", "")
    admin.save()
    chat.page.reload()
    chat.ready()
    expect(chat.page.locator("#header .notice")).to_have_count(0)


def test_questions_to_start_with_and_the_language_of_the_page(admin, office, visit):
    admin.section("settings")
    admin.set("starter_questions", "Where is the printer?|Who has the key?")
    admin.set("language", "zh")
    admin.save()
    chat = visit(office, locale="en-US")
    expect(chat.page.locator("#welcome [data-ask]")).to_have_text(["Where is the printer?", "Who has the key?"])
    expect(chat.page.locator("#send")).to_have_text("发送")
    admin.set("starter_questions", "")
    admin.set("language", "auto")
    admin.save()


def test_a_bad_value_is_marked_while_it_is_typed_and_saves_nothing(admin, office):
    admin.section("settings")
    admin.set("queue_size", "lots")
    expect(admin.problem("queue_size")).to_have_text("Expected: a whole number from 0 to 1000")
    admin.set("login_days", "7")
    assert admin.save() == "Not saved: please look at what is marked."
    expect(admin.page.locator("#set-queue_size")).to_be_focused()
    assert not (office.data_dir / "office-chat.toml").exists() or "login_days" not in _file(office)
    admin.page.click("#discard")
    expect(admin.problem("queue_size")).to_be_hidden()
    expect(admin.page.locator("#set-queue_size")).to_have_value("20")


def test_what_the_start_decided_is_locked(admin):
    admin.section("settings")
    expect(admin.page.locator("#set-allowed_hosts")).to_be_disabled()
    expect(admin.page.locator("#note-allowed_hosts")).to_contain_text("an environment variable")
    expect(admin.page.locator("#note-port")).to_contain_text("a flag at the start")


def test_of_two_admins_the_second_is_told_and_sees_what_the_first_saved(admin, office, new_page):
    other = Admin(new_page(), office).open().section("settings")
    admin.section("settings")
    admin.set("office_name", "Haus 3")
    admin.save()
    other.set("office_name", "Haus 4")
    other.set("login_days", "14")
    assert "Somebody else has changed this meanwhile: Name of the office." in other.save()
    assert 'office_name = "Haus 3"' in _file(office)
    assert "login_days" not in _file(office)
    assert other.save() == "Saved. It acts already."
    assert 'office_name = "Haus 4"' in _file(office)
    assert "login_days = 14" in _file(office)


def test_settings_are_found_by_what_they_are_called(admin):
    admin.section("settings")
    admin.page.fill("#find", "temperature")
    expect(admin.page.locator(".setting:visible")).to_have_count(1)
    admin.page.fill("#find", "no such thing")
    expect(admin.page.locator("#found-none")).to_be_visible()


def test_a_quick_answer_counts_from_the_next_question_on(admin, office, visit):
    admin.section("answers")
    admin.page.fill("#quick-questions textarea", "Where is the printer?\n打印机在哪")
    admin.page.fill("#quick-answer textarea", "On the second floor.")
    admin.page.click("#quick-save")
    expect(admin.page.locator("#quick-status")).to_have_text("Saved. It counts from the next question on.")
    chat = visit(office)
    assert chat.ask("where is the printer") == "On the second floor."
    admin.pick("quick-pick", "Where is the printer?")
    expect(admin.page.locator("#quick-answer textarea")).to_have_value("On the second floor.")
    admin.page.fill("#quick-answer textarea", "In the kitchen.")
    admin.page.click("#quick-save")
    expect(admin.page.locator("#quick-pick label", has_text="In the kitchen.")).to_be_visible()
    assert chat.ask("打印机在哪？") == "In the kitchen."
    admin.pick("quick-pick", "In the kitchen.")
    expect(admin.page.locator("#quick-answer textarea")).to_have_value("In the kitchen.")
    admin.page.click("#quick-delete")
    expect(admin.page.locator("#quick-status")).to_have_text("Deleted.")
    expect(admin.page.locator("#quick-pick label", has_text="In the kitchen.")).to_have_count(0)


def test_a_saved_answer_is_shown_once_three_people_have_asked_for_it_and_can_be_corrected(programs, new_page, visit):
    app = programs.get(answer_cache_scope="first")
    page = new_page()
    page.goto(app.owners_link("/admin"))
    admin = Admin(page, app).ready().section("answers")
    question = "When does the canteen open?"
    for number in range(3):
        expect(page.locator("#cache-pick label")).to_have_count(0)
        visit(app).ask(question)
        page.click("#cache-refresh")
        if number < 2:
            expect(page.locator("#cache-status")).to_have_text("None yet.")
    admin.pick("cache-pick", question)
    expect(page.locator("#cache-answer textarea")).to_have_value(question)
    page.fill("#cache-answer textarea", "At noon.")
    page.click("#cache-keep")
    expect(page.locator("#cache-status")).to_have_text("Kept until it is deleted.")
    assert visit(app).ask(question).startswith("At noon.")
    admin.pick("cache-pick", question)
    page.click("#cache-delete")
    expect(page.locator("#cache-pick label")).to_have_count(0)
    assert visit(app).ask(question) == question


def test_a_block_list_that_cannot_be_used_is_refused_with_its_line(admin, office):
    admin.section("answers")
    admin.page.click("#block-whole button")
    admin.page.fill("#block-text textarea", '# ours\n[[rule]]\npatterns = ["("]\n')
    problem = "line 2: a pattern cannot be used: missing ): ("
    expect(admin.page.locator("#block-text-typed")).to_have_text(problem)
    admin.page.click("#block-text-save")
    expect(admin.page.locator("#block-status")).to_contain_text(problem)
    assert not (office.data_dir / "block_list.toml").exists()
    admin.page.fill("#block-text textarea", '# ours\n[[rule]]\nwords = ["x"]\n')
    expect(admin.page.locator("#block-text-typed")).to_have_text("")


def test_a_question_that_cannot_be_asked_is_named_while_it_is_typed(office, new_page):
    admin = Admin(new_page(locale="zh-CN", viewport={"width": 360, "height": 740}), office).open().section("answers")
    admin.page.fill("#quick-questions textarea", "？？")
    expect(admin.page.locator("#quick-typed")).to_have_text("有一个问题既没有文字也没有数字")
    admin.page.fill("#quick-questions textarea", "打印机在哪？")
    expect(admin.page.locator("#quick-typed")).to_have_text("")
    admin.page.click("#quick-save")
    expect(admin.page.locator("#quick-status")).to_have_text("未保存，之前的规则继续使用：缺少“回答”")
    assert admin.errors == []


def test_a_key_is_shown_once_and_opens_nothing_after_it_was_revoked(admin, office):
    admin.section("access")
    admin.page.fill("#key-name :is(input, textarea)", "Ann's laptop")
    admin.page.click("#key-add")
    made = admin.page.locator("#key-made :is(input, textarea)")
    expect(made).to_have_value(re.compile("^oc_"))
    key = made.input_value()
    assert _models(office, key) == 200
    admin.page.reload()
    admin.ready().section("access")
    expect(made).to_have_count(0)
    admin.pick("key-pick", "Ann's laptop")
    admin.page.click("#key-revoke")
    expect(admin.page.locator("#key-status")).to_contain_text("opens nothing any more")
    assert _models(office, key) == 401


def test_a_conversation_is_ended_without_being_read(admin, office, visit):
    chat = visit(office)
    chat.ask("what nobody else should read")
    admin.section("access")
    admin.page.click("#session-refresh")
    lines = admin.page.locator("#session-pick label")
    expect(lines.first).to_contain_text("questions: 1")
    assert "nobody" not in admin.page.content()
    before = lines.count()
    lines.first.click()
    admin.page.click("#session-end")
    expect(admin.page.locator("#session-status")).to_have_text("Ended.")
    expect(lines).to_have_count(before - 1)


def test_the_admin_gets_in_and_acts_while_every_place_is_taken(programs, new_page, visit):
    app = programs.get(max_batch_size=1, look_ahead=0, queue_size=2, disconnect_grace_s=1, disconnect_grace_busy_s=1)
    for number in range(3):
        chat = visit(app)
        chat.send(f"{number}: this takes a while to write. " * 10)
    busy = visit(app)
    busy.send("one too many")
    assert "every place is taken" in busy.refusal()
    page = new_page()
    page.goto(app.owners_link("/admin"))
    admin = Admin(page, app).ready()
    admin.section("settings")
    admin.set("notice", "Please be brief")
    assert admin.save() == "Saved. It acts already."


def test_the_log_is_shown_and_holds_nothing_of_what_people_write(admin, office, visit):
    visit(office).ask("a word nobody should find")
    admin.section("log")
    expect(admin.page.locator("#log-lines")).to_contain_text("request ", timeout=15_000)
    assert "nobody should find" not in office.log()
    admin.page.click("#log-which label:nth-of-type(2)")
    expect(admin.page.locator("#log-lines")).not_to_contain_text("request ")


def test_neither_config_nor_export_nor_log_holds_a_secret_or_a_conversation(admin, office, visit):
    visit(office).ask("a word of a conversation")
    key = command(office.data_dir, "add-key", "a program").split()[0]
    told, page = "", admin.page.context.new_page()
    for path in ("admin/en/config", "admin/zh/config", "admin/en/", "admin/settings", "admin/status", "config", ""):
        response = page.goto(page_url(office) + path)
        assert response.status == 200, path
        told += response.text()
    told += office.log()
    digest = hashlib.sha256(key.encode()).hexdigest()
    assert digest in Paths(office.data_dir).api_keys.read_text()
    own = Paths(office.data_dir).secret.read_bytes()
    secrets = [PASSWORD, "$argon2", key, digest, "a word of a conversation", own.hex(), own.decode("latin-1")]
    assert [secret for secret in secrets if secret in told] == []


def test_a_restart_lets_the_page_come_back_with_the_new_setting(tmp_path, new_page):
    app = Program(tmp_path, backend="echo", allowed_hosts=HOST).wait_ready()
    try:
        page = new_page()
        page.goto(app.owners_link("/admin"))
        admin = Admin(page, app).ready().section("settings")
        admin.set("max_batch_size", "3")
        assert admin.save() == "Saved. It acts at the next start."
        expect(page.locator("#note-max_batch_size")).to_contain_text("In use until the restart: 16")
        admin.section("log")
        expect(page.locator("#pending")).to_contain_text("Answers at the same time", timeout=15_000)
        page.click("#restart")
        page.click("#restart-yes")
        expect(page.locator("#restart-status")).to_contain_text("is being restarted")
        expect(page.locator("#pending")).to_contain_text("No setting is waiting", timeout=60_000)
        admin.section("settings")
        expect(page.locator("#set-max_batch_size")).to_have_value("3")
        assert admin.errors == []
    finally:
        app.close()


def test_a_passcode_is_asked_for_from_now_on(tmp_path, new_page):
    app = Program(tmp_path, backend="echo", allowed_hosts=HOST).wait_ready()
    try:
        page, reader = new_page(), new_page()
        Chat(reader, page_url(app)).open()
        page.goto(app.owners_link("/admin"))
        admin = Admin(page, app).ready().section("access")
        admin.pick("access-mode", "Who knows the passcode")
        page.click("#passcode-save")
        expect(page.locator("#passcode-status")).to_contain_text("No passcode is set yet")
        page.fill("#passcode input", "open sesame")
        page.click("#passcode-save")
        # This page, too, asks for the passcode or the admin's password now.
        page.wait_for_selector("#password")
        assert reader.goto(page_url(app)).url.startswith(page_url(app) + "login")
        assert 'access = "passcode"' in _file(app)
    finally:
        app.close()


def _file(app: Program) -> str:
    return (app.data_dir / "office-chat.toml").read_text(encoding="utf-8")


def _models(app: Program, key: str) -> int:
    url = f"http://127.0.0.1:{app.port}/v1/models"
    return httpx.get(url, headers={"Authorization": f"Bearer {key}", "Host": HOST}, trust_env=False).status_code
