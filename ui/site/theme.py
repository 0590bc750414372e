"""Colours, fonts and radii of the page, on Gradio's theme system. No font is fetched: the system's own are named."""

from __future__ import annotations

import gradio as gr
from gradio.themes.utils.colors import Color
from gradio.themes.utils.fonts import Font

ACCENT = Color(
    name="office",
    c50="#effaf8",
    c100="#d5f2ed",
    c200="#aee4dc",
    c300="#7bcfc5",
    c400="#47b3a8",
    c500="#23978d",
    c600="#177a73",
    c700="#15625d",
    c800="#144e4b",
    c900="#13413f",
    c950="#052726",
)
"""A quiet green: readable with white on it from 600 on (contrast 5.2)."""

INK = Color(
    name="ink",
    c50="#f8f8f7",
    c100="#f1f1ef",
    c200="#e4e4e1",
    c300="#cfcfca",
    c400="#a3a39d",
    c500="#73736d",
    c600="#555550",
    c700="#3b3b38",
    c800="#262624",
    c900="#1b1b1a",
    c950="#131312",
)
"""Warm greys for paper and ink."""

SANS = tuple(
    Font(name)
    for name in (
        "system-ui",
        "-apple-system",
        "Segoe UI",
        "Roboto",
        "PingFang SC",
        "Microsoft YaHei",
        "Noto Sans CJK SC",
        "Noto Sans SC",
        "WenQuanYi Micro Hei",
        "sans-serif",
    )
)
MONO = tuple(
    Font(name)
    for name in ("ui-monospace", "SFMono-Regular", "Consolas", "Liberation Mono", "Noto Sans Mono CJK SC", "monospace")
)


def make_theme() -> gr.themes.Base:
    """The one theme of the page, light and dark."""
    theme = gr.themes.Base(
        primary_hue=ACCENT,
        secondary_hue=ACCENT,
        neutral_hue=INK,
        font=SANS,
        font_mono=MONO,
        radius_size=gr.themes.sizes.radius_lg,
        text_size=gr.themes.sizes.text_md,
    )
    return theme.set(
        body_background_fill="#ffffff",
        body_background_fill_dark="*neutral_900",
        background_fill_primary="#ffffff",
        background_fill_primary_dark="*neutral_900",
        background_fill_secondary="*neutral_50",
        background_fill_secondary_dark="*neutral_800",
        body_text_color="*neutral_900",
        body_text_color_dark="*neutral_100",
        body_text_color_subdued="*neutral_600",
        body_text_color_subdued_dark="*neutral_400",
        border_color_primary="*neutral_200",
        border_color_primary_dark="*neutral_700",
        block_background_fill="transparent",
        block_background_fill_dark="transparent",
        block_border_width="0px",
        block_shadow="none",
        block_padding="0px",
        input_background_fill="transparent",
        input_background_fill_dark="transparent",
        input_border_width="0px",
        input_shadow="none",
        input_shadow_focus="none",
        input_padding="0px",
        input_text_size="16px",
        button_secondary_background_fill="transparent",
        button_secondary_background_fill_dark="transparent",
        button_secondary_background_fill_hover="*neutral_100",
        button_secondary_background_fill_hover_dark="*neutral_800",
        button_secondary_text_color="*neutral_600",
        button_secondary_text_color_dark="*neutral_300",
        button_primary_background_fill="*primary_600",
        button_primary_background_fill_dark="*primary_600",
        button_primary_background_fill_hover="*primary_700",
        button_primary_background_fill_hover_dark="*primary_500",
        button_primary_text_color="#ffffff",
        link_text_color="*primary_700",
        link_text_color_dark="*primary_300",
        code_background_fill="*neutral_100",
        code_background_fill_dark="*neutral_800",
    )
