"""The campaigns that are served now, each with its life; what another process changes shows in a second."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from noisette.collector.campaigns.life import Life
from noisette.collector.repeated import Repeated
from noisette.collector.storage.store import Store
from noisette.survey.campaigns import Campaign

_SECONDS_BETWEEN = 1.0  # seconds between two looks at what others have changed
_KEEPING = 600  # looks between two deletions of what has expired


class Roster:
    """Campaigns and lives of a store; `reload` reads them anew."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._found: dict[str, tuple[Campaign, Life]] = {}
        self.reload()

    def reload(self) -> None:
        """Read all campaigns; one that is known keeps its object, which has its layout and its laws ready."""
        found = {}
        for name, (campaign, fields) in self._store.registry.campaigns().items():
            life = Life().changed(fields)
            before = self._found.get(name)
            same = before is not None and before[1] == life and before[0].to_wire() == life.applied(campaign).to_wire()
            found[name] = before if before is not None and same else (life.applied(campaign), life)
        self._found = found

    @property
    def campaigns(self) -> dict[str, Campaign]:
        """Every campaign by its id."""
        return {name: campaign for name, (campaign, _) in self._found.items()}

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def campaign(self, name: str) -> Campaign:
        """Return a campaign that is there."""
        return self._found[name][0]

    def life(self, name: str) -> Life:
        """Return the life of a campaign; one that has just gone takes no more reports."""
        return self._found[name][1] if name in self._found else Life(state="closed")

    def open(self, campaign: Campaign, life: Life, who: str) -> None:
        """Add a campaign."""
        self._store.registry.add(campaign, life.written(), who)
        self.reload()

    def change(self, name: str, fields: Mapping[str, Any], who: str, action: str = "edit-campaign") -> Life:
        """Change what nothing private depends on."""
        life = self.life(name).changed(fields)
        self._store.registry.change(name, life.written(), who, action, dict(fields))
        self.reload()
        return life

    def delete(self, name: str, who: str) -> None:
        """Delete a campaign that takes no more reports, with all that was reported."""
        if self.life(name).state == "open":
            raise ValueError(f"Campaign {name!r} is open. Close or archive it first.")
        self._store.registry.delete(name, who)
        self.reload()

    def expire(self, now: datetime | None = None) -> int:
        """Delete the reports that have been kept for long enough, and return how many."""
        now, count = datetime.now(UTC) if now is None else now, 0
        for name, (campaign, life) in self._found.items():
            if life.keep is not None:
                gone = self._store.registry.expired(name)
                for period in self._store.periods(campaign):
                    if period not in gone and life.expired(campaign, period, now):
                        count += self._store.registry.expire(name, period, "retention")
        return count


def lived(store: Store, given: Iterable[tuple[Campaign, Life]]) -> Roster:
    """Register campaigns of files and return all campaigns of a store; a life that is stored wins over the file's."""
    for campaign, life in given:
        store.register(campaign, life.written())
    return Roster(store)


class Watch(Repeated):
    """Reads what other processes have changed, and from time to time deletes what has expired."""

    def __init__(
        self, store: Store, refresh: Callable[[], Any], reload: Callable[[], Any], keep_house: Callable[[], Any]
    ) -> None:
        super().__init__("watch", _SECONDS_BETWEEN)
        self._store, self._refresh, self._reload, self._keep_house = store, refresh, reload, keep_house
        self._seen, self._looks = store.registry.changes(), 0

    def look(self) -> None:
        """Read what has changed; every so many looks delete what has expired."""
        self._looks += 1
        if (now := self._store.registry.changes()) != self._seen:
            self._reload()
            self._seen = now
        self._refresh()
        if self._looks >= _KEEPING:
            self._looks = 0
            self._keep_house()
