"""One self-contained HTML file that answers, shows and explains; reads nothing but a Result."""

from semrecall.report.figures import Figures, figures_of
from semrecall.report.headline import headline
from semrecall.report.page import html_report, write_html

__all__ = ["Figures", "figures_of", "headline", "html_report", "write_html"]
