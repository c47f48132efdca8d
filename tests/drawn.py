"""What a reader of a picture sees of its texts."""

from unittest.mock import patch

from matplotlib.text import Text


def shown_texts(figure):
    """Texts that were drawn, with their extents in pixels."""
    drawn = {}

    def recorded(text, renderer, *args, draw=Text.draw, **kwargs):
        if text.get_visible() and text.get_text():
            drawn[text] = text.get_text()
        return draw(text, renderer, *args, **kwargs)

    with patch.object(Text, "draw", recorded):
        figure.canvas.draw()
    return [(words, text.get_window_extent()) for text, words in drawn.items()]


def cut_off(texts, size):
    """Texts of `shown_texts` that leave a picture of (width, height) pixels."""
    width, height = size
    return [
        (text, box.extents)
        for text, box in texts
        if box.x0 < -0.5 or box.y0 < -0.5 or box.x1 > width + 0.5 or box.y1 > height + 0.5
    ]
