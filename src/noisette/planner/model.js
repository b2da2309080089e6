"use strict";
// The prediction of noisette.prediction.plan, from the laws that Python fitted. No document here: only numbers.
// A law gives, for the budget of one report on [-1, 1], variance(0), variance(1) and bias(1); then
// variance(t) = (1 - t^2) variance(0) + t^2 variance(1) and bias(t) = t bias(1).

function makePlanner(data) {
  const ROUNDING = 2e-8; // a smaller bias is the rounding of reports to their lattice
  const SLACK = 1 + 1e-12;
  const FAR = 1e15; // users, beyond which an error counts as out of reach
  const MOST = 1e12; // users, beyond which no crossing of worst cases is sought
  const half = (data.domain.high - data.domain.low) / 2;

  function polynomial(row, x) { // Clenshaw's sum of Chebyshev polynomials
    let after = 0, last = 0;
    for (let k = row.length - 1; k > 0; k--) [after, last] = [2 * x * after - last + row[k], after];
    return x * after - last + row[0];
  }

  function moments(law, epsilon) {
    const panel = law.panels.find(p => p.low / SLACK <= epsilon && epsilon <= p.high * SLACK);
    if (!panel) return null;
    const x = Math.log(epsilon * epsilon / (panel.low * panel.high)) / Math.log(panel.high / panel.low);
    const [zero, one, slope] = panel.rows.map(row => polynomial(row, x));
    const unbiased = Math.abs(slope) <= ROUNDING;
    return { zero: Math.exp(zero), one: Math.exp(one), slope: unbiased ? 0 : slope, unbiased };
  }

  // What is known of the true values: averages over the dimensions of mean, mean^2 and E t^2, on [-1, 1].
  function population(name, dims) {
    const known = data.populations.find(p => p.name === name);
    if (known.rows) return known.rows[Math.min(dims, known.rows.length) - 1];
    if (!known.tenth) return known.fixed || null;
    const share = Math.floor(dims / 10) / dims;
    return known.fixed.map((value, i) => (1 - share) * value + share * known.tenth[i]);
  }

  // Mean squared error against the number of users, for a mechanism that reports m of d dimensions.
  function curve(law, state, report) {
    const whole = law.dims !== null;
    if (whole && law.dims !== state.dims) return null;
    const share = whole || state.dims === 1 ? 1 : report / state.dims;
    const found = moments(law, whole || state.dims === 1 ? state.epsilon : state.epsilon / report);
    if (!found) return null;
    const { zero, one, slope, unbiased } = found, missing = 1 - share, area = half * half;
    const known = population(state.population, state.dims);
    if (known) {
      const [mean, means, square] = known, spread = Math.max(square - means, 0);
      const noise = ((1 - square) * zero + square * one + missing * spread * (1 + slope) ** 2) / share * area;
      const typical = Math.abs(slope) * Math.sqrt(means), bias = typical > ROUNDING ? area * typical * typical : 0;
      return {
        unbiased, noise, square: bias, share,
        at: users => noise / users + bias,
        describe: users => ({ bias: bias ? half * slope * mean : 0, std: Math.sqrt(noise / users), mse: noise / users + bias }),
      };
    }
    // the error is linear in (mean^2, E t^2), so its largest value is at a corner: 0, an end, or both ends alike
    const corners = users => {
      const reports = users * share;
      return [
        { bias: 0, variance: zero / reports },
        { bias: slope, variance: one / reports },
        { bias: 0, variance: (one + missing * (1 + slope) ** 2) / reports },
      ].map(c => ({ bias: half * Math.abs(c.bias), std: half * Math.sqrt(c.variance), mse: area * (c.bias ** 2 + c.variance) }));
    };
    const worst = users => corners(users).reduce((a, b) => (b.mse > a.mse ? b : a));
    return { unbiased, share, at: users => worst(users).mse, describe: worst };
  }

  function rint(x) { // ties to even, as numpy does
    const low = Math.floor(x), rest = x - low;
    return rest < 0.5 || (rest === 0.5 && low % 2 === 0) ? low : low + 1;
  }

  function unique(numbers) { return [...new Set(numbers.map(rint))].sort((a, b) => a - b); }

  // The number of dimensions of least cost: the best of a few from 1 to d, then of those between.
  function bestReport(cost, dims) {
    const seen = new Map();
    const known = m => { if (!seen.has(m)) seen.set(m, cost(m)); return seen.get(m); };
    let tried = unique(Array.from({ length: 12 }, (_, i) => dims ** (i / 11)));
    for (;;) {
      let best = 0;
      tried.forEach((m, i) => { if (known(m) < known(tried[best])) best = i; });
      const low = tried[Math.max(best - 1, 0)], high = tried[Math.min(best + 1, tried.length - 1)];
      if (high - low <= 2) return tried[best];
      tried = unique(Array.from({ length: 9 }, (_, i) => low + (high - low) * i / 8));
    }
  }

  // The m of least (1/m) coth(e / 2m)^2: for mechanisms that are not tried at many budgets.
  function rule(epsilon, dims) {
    const below = Math.min(Math.max(Math.floor(epsilon / 2.1773189849653), 1), dims);
    const cost = m => 1 / m / Math.tanh(epsilon / m / 2) ** 2;
    const above = Math.min(below + 1, dims);
    return cost(above) < cost(below) ? above : below;
  }

  function chosenReport(law, state) {
    if (law.dims !== null || state.dims === 1) return 1;
    if (state.report !== null) return state.report;
    if (law.fixed) return rule(state.epsilon, state.dims);
    const cost = m => { const c = curve(law, state, m); return c ? c.at(state.users) : Infinity; };
    return bestReport(cost, state.dims);
  }

  function candidate(law, state) {
    const report = chosenReport(law, state), errors = curve(law, state, report);
    if (!errors) return null;
    return {
      mechanism: law.name, report: law.dims === null ? report : null, unbiased: errors.unbiased,
      reports: state.users * errors.share, errors, law, ...errors.describe(state.users),
    };
  }

  // The population at which two curves cross, or null if one lies below the other everywhere.
  function crossing(first, second) {
    if (first.unbiased && second.unbiased) return null;
    if (first.noise !== undefined) {
      const gap = first.square - second.square;
      const users = gap !== 0 ? (second.noise - first.noise) / gap : 0;
      return users > 0 ? users : null;
    }
    const lead = x => first.at(Math.exp(x)) < second.at(Math.exp(x));
    const grid = Array.from({ length: 25 }, (_, i) => i * Math.log(MOST) / 24);
    const leads = grid.map(lead);
    let change = leads.length - 1;
    while (change > 0 && leads[change] === leads[change - 1]) change--;
    if (change === 0) return null;
    let low = grid[change - 1], high = grid[change];
    while (high - low > 1e-8) {
      const middle = (low + high) / 2;
      if (lead(middle) === leads[change - 1]) low = middle; else high = middle;
    }
    return Math.exp(high);
  }

  function breakEvens(candidates) {
    const found = [];
    candidates.forEach((first, i) => candidates.slice(i + 1).forEach(second => {
      const population = crossing(first.errors, second.errors);
      if (population === null) return;
      const below = first.errors.at(population / 2) < second.errors.at(population / 2);
      const [a, b] = below ? [first, second] : [second, first];
      found.push({ a: a.mechanism, b: b.mechanism, population });
    }));
    return found;
  }

  // Who has the least error from one number of users to another, the dimensions to report as chosen here.
  function winners(candidates, points) {
    const marks = [1, ...points.map(p => p.population).filter(p => p > 1 && p < MOST).sort((a, b) => a - b), MOST];
    const found = [];
    for (let i = 0; i + 1 < marks.length; i++) {
      const middle = Math.sqrt(marks[i] * marks[i + 1]);
      const first = candidates.reduce((a, b) => (b.errors.at(middle) < a.errors.at(middle) ? b : a));
      if (!found.length || found[found.length - 1].mechanism !== first.mechanism) found.push({ mechanism: first.mechanism, from: marks[i] });
    }
    return found;
  }

  // The least number of users at which the error is at most `target`, the dimensions to report as chosen here; or null.
  function needed(found, target) {
    const { noise, square, at } = found.errors, mse = target * (1 + 1e-9);
    if (noise !== undefined) {
      if (square >= mse) return null;
      const guess = noise / (mse - square);
      return guess < FAR ? Math.max(1, Math.ceil(guess)) : null;
    }
    if (at(FAR) > mse) return null;
    let low = 0, high = 1;
    while (at(high) > mse) [low, high] = [high, 2 * high];
    while (high - low > 1) { const middle = Math.floor((low + high) / 2); if (at(middle) > mse) low = middle; else high = middle; }
    return high;
  }

  function plan(state) {
    const laws = data.laws.filter(law => state.mechanisms.includes(law.name));
    const all = laws.map(law => candidate(law, state)).filter(found => found !== null);
    const absent = laws.filter(law => !all.some(found => found.law === law));
    const candidates = [...all].sort((a, b) => a.mse - b.mse);
    const unbiased = candidates.find(found => found.unbiased) || null;
    return { candidates, best: candidates[0] || null, unbiased, breakEven: breakEvens(all), absent };
  }

  // The error against the signal: how far a value is from the middle of the range, which one could say without asking.
  function verdict(state, made) {
    const known = population(state.population, state.dims);
    const signal = half * (known ? Math.sqrt(known[2]) : 1), error = Math.sqrt(made.best.mse), ratio = signal / error;
    return { words: ratio < 1 ? "not worth collecting" : ratio < 2 ? "doubtful" : "worth collecting", signal, error };
  }

  return { plan, verdict, winners, candidate, needed, population, moments, half };
}
