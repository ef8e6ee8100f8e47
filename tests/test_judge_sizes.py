"""Estimates of tokens, and long documents: J26."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semrecall.errors import InputError
from semrecall.judges.sizes import POLICIES, estimate_tokens, fit

# (text, fewest and most tokens) of the text as a JSON string, repeated five times, with cl100k and
# o200k (tiktoken 0.14), an early Claude's vocabulary and DeepSeek's (files in litellm 1.110).
COUNTED = [
    (
        "语义召回率衡量的是搜索系统真正丢失的结果。很多人只看精确邻居,却忘了其中有些"
        "根本不重要。我们让语言模型逐一判断每个文档是否回答了问题,然后计算召回率。二"
        "〇二四年上海的天气非常炎热,居民纷纷到公园乘凉。",
        280,
        600,
    ),
    (
        "検索システムが本当に失うものを測定する。多くの人は正確な近傍だけを見て、そ"
        "のうちのいくつかが重要でないことを忘れている。東京の天気はとても暑く、公園"
        "で涼む人が増えています。カタカナのテキストもテストします。",
        335,
        540,
    ),
    (
        "의미 재현율은 검색 시스템이 실제로 잃어버리는 것을 측정합니다. 많은 사람들"
        "은 정확한 이웃만 보고 그중 일부가 중요하지 않다는 것을 잊습니다. 서울의 날"
        "씨는 매우 더웠습니다.",
        265,
        485,
    ),
    (
        "يقيس الاستدعاء الدلالي ما يفقده نظام البحث حقا. كثير من الناس ينظرون فقط إ"
        "لى الجيران الدقيقين وينسون أن بعضهم غير مهم. كان الطقس في القاهرة حارا جدا"
        ".",
        235,
        655,
    ),
    (
        "מדד האחזור הסמנטי בודק מה מערכת החיפוש באמת מאבדת. אנשים רבים מסתכלים רק ע"
        "ל השכנים המדויקים ושוכחים שחלקם אינם חשובים.",
        220,
        580,
    ),
    (
        "सिमेंटिक रिकॉल यह मापता है कि खोज प्रणाली वास्तव में क्या खोती है। बहुत से लोग केवल सटी"
        "क पड़ोसियों को देखते हैं और भूल जाते हैं कि उनमें से कुछ महत्वपूर्ण नहीं हैं।",
        230,
        870,
    ),
    (
        "Семантическая полнота измеряет, что поисковая система действительно теряет"
        ". Многие смотрят только на точных соседей и забывают, что некоторые из них"
        " не важны. В Москве было очень жарко.",
        231,
        460,
    ),
    (
        "Η σημασιολογική ανάκληση μετρά τι χάνει πραγματικά ένα σύστημα αναζήτησης."
        " Πολλοί κοιτούν μόνο τους ακριβείς γείτονες.",
        200,
        665,
    ),
    (
        "Độ thu hồi ngữ nghĩa đo lường những gì hệ thống tìm kiếm thực sự đánh mất."
        " Nhiều người chỉ nhìn vào các láng giềng chính xác.",
        185,
        465,
    ),
    (
        "မြန်မာနိုင်ငံသည် အရှေ့တောင်အာရှတွင် တည်ရှိသည်။ ရန်ကုန်မြို့သည် အကြီးဆုံးမြို့ဖြစ်သည်။",
        195,
        840,
    ),
    (
        "საქართველო მდებარეობს კავკასიაში და მისი დედაქალაქია თბილისი.",
        90,
        575,
    ),
    (
        "កម្ពុជាជាប្រទេសមួយនៅអាស៊ីអាគ្នេយ៍ រាជធានីគឺភ្នំពេញ។",
        145,
        755,
    ),
    (
        "Die semantische Trefferquote misst, was eine Suchmaschine wirklich verlier"
        "t. Viele Leute sehen nur auf die genauen Nachbarn, Überprüfungsmöglichkeit"
        "en übergehend.",
        156,
        245,
    ),
    (
        "The ferry leaves the harbour twice a day in winter. Foot passengers board "
        "at the stone steps, and cars by the ramp behind the fish hall.",
        141,
        145,
    ),
    (
        "เรือข้ามฟากออกจากท่าวันละสองเที่ยวในฤดูหนาว ผู้โดยสารที่เดินเท้าขึ้นเรือที่บันไดหิน",
        185,
        705,
    ),
    (
        'def mean(values: list[float]) -> float:\n    """The mean."""\n    return sum'
        "(values) / len(values)\n",
        151,
        176,
    ),
    (
        '| 12.5 | 0.88 | "x" |\n|---|---|---|\n',
        90,
        120,
    ),
    (
        "😀🚀👩\u200d💻❤️🎉 ok ",
        61,
        92,
    ),
]


@pytest.mark.parametrize(("text", "fewest", "most"), COUNTED, ids=[t[:12] for t, _, _ in COUNTED])
def test_the_range_holds_what_tokenizers_count(text: str, fewest: int, most: int) -> None:
    low, high = estimate_tokens(text * 5)
    assert low <= fewest
    assert most <= high
    # Not so wide that it says nothing.
    assert high <= 4 * most
    assert low >= fewest / 4


def test_small() -> None:
    assert estimate_tokens("") == (0, 0)
    assert estimate_tokens("a") == (1, 1)


@given(st.text(), st.text())
def test_estimates_add_up(first: str, second: str) -> None:
    whole = estimate_tokens(first + second)
    parts = [estimate_tokens(first), estimate_tokens(second)]
    assert parts[0][1] <= whole[1] <= parts[0][1] + parts[1][1]
    assert whole[0] <= whole[1]


@pytest.mark.parametrize("policy", POLICIES)
def test_what_fits_is_left_alone(policy: str) -> None:
    fitted = fit("short", 10, policy)
    assert (fitted.texts, fitted.cut, fitted.flags) == (("short",), False, ())


def test_two_megabytes_for_eight_thousand_tokens() -> None:  # J26
    text = "".join(f"word{at} " for at in range(200_000))
    assert len(text) > 2_000_000
    for policy in ("head", "tail", "head-tail"):
        fitted = fit(text, 7000, policy)
        [part] = fitted.texts
        assert fitted.flags == ("input cut",)
        assert 6000 < estimate_tokens(part)[1] <= 7000
        assert part.startswith("word0 ") == (policy != "tail")
        assert part.endswith("word199999 ") == (policy != "head")
        # Words are whole.
        assert set(part.split()) - {"[...]"} <= set(text.split())
    windows = fit(text, 7000, "windows")
    assert not windows.cut
    assert windows.flags == (f"best of {len(windows.texts)} windows",)
    assert all(estimate_tokens(part)[1] <= 7000 for part in windows.texts)


@given(
    st.text(max_size=200) | st.text("กำลังที่ a\u0301😀\u200d\n", max_size=200),
    st.integers(1, 60),
)
def test_parts_fit_and_windows_lose_nothing(text: str, room: int) -> None:
    for policy in POLICIES:
        fitted = fit(text, room, policy)
        # A single character may be larger than the room.
        assert all(estimate_tokens(part)[1] <= max(room, 6) for part in fitted.texts)
        assert fitted.cut == (policy != "windows" and fitted.texts != (text,))
    if policy == "windows":
        at = 0
        for part in fitted.texts:
            start = text.rfind(part, 0, at + len(part))
            assert 0 <= start <= at
            at = max(at, start + len(part))
        assert at == len(text)


def test_marks_stay_with_their_letters() -> None:
    text = "กี่" * 200  # a consonant and two marks
    for policy in ("head", "windows"):
        for part in fit(text, 21, policy).texts:
            assert part[0] == "ก"
            assert part.endswith("กี่")
    assert fit(text, 21, "tail").texts[0][0] == "ก"


def test_windows_overlap() -> None:
    first, second, *_ = fit("".join(f"{at:04} " for at in range(500)), 300, "windows").texts
    assert first.split()[-1] in second


def test_no_room() -> None:
    with pytest.raises(InputError, match="0 tokens are left"):
        fit("text", 0)
    with pytest.raises(InputError, match="head, tail, head-tail, windows"):
        fit("text", 5, "middle")
