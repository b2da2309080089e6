"""The texts that people wrote most often: searched beside the service, so that whoever looks never waits for it."""

from __future__ import annotations

import threading
from typing import Any

from noisette.survey.campaigns import Campaign
from noisette.survey.sums import Sums

_SHOWN_TEXTS = 20  # texts
_GROWTH = 1.05  # times as many users make a new search worth its while


def found_texts(sums: Sums, name: str, level: float = 0.95) -> dict[str, Any]:
    """Return the most frequent texts of a question, the users whose reports they are from, and a note."""
    from noisette.survey.coding.texts import top_texts

    section, own = sums.about(name)
    table = top_texts(section.items[0].found(section.mechanism, own, _SHOWN_TEXTS), level)
    return {"users": sums.users, "rows": table.to_dict("records"), "note": table.attrs["note"]}


class TextSearch:
    """Finds the most frequent texts of each question, one search at a time, in a thread.

    What was found last is shown until the next search ends, with the users whose reports it is from.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str, str, float], dict[str, Any]] = {}
        self._busy = False

    def found(self, campaign: Campaign, period: str, sums: Sums, level: float = 0.95) -> dict[str, dict[str, Any]]:
        """Return for each question of texts what was found so far; look anew where there are many more reports."""
        found = {}
        for question in campaign.survey.questions:
            if question.tells != "texts":
                continue
            key = (campaign.id, period, question.name, level)
            with self._lock:
                known = self._known.get(key)
                stale = sums.users > 0 and (known is None or sums.users >= known["users"] * _GROWTH)
                if stale and not self._busy:
                    self._busy = True
                    threading.Thread(target=self._search, args=(key, sums), daemon=True).start()
            found[question.name] = known or {
                "users": 0,
                "rows": [],
                "note": "Searching." if sums.users else "No reports yet.",
            }
        return found

    def _search(self, key: tuple[str, str, str, float], sums: Sums) -> None:
        try:
            made = found_texts(sums, key[2], key[3])
        except Exception as error:  # whatever it is, it is no reason to show nothing else
            made = {"users": sums.users, "rows": [], "note": f"The search failed: {type(error).__name__}."}
        with self._lock:
            self._known[key], self._busy = made, False
