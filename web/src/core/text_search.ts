// Where in a text the words are that somebody looks for: compared without case and accents, as the server's search
// compares them.

export type Span = readonly [start: number, end: number];

const CHUNK = /"([^"]*)"|([^\s"]+)/g;
const LETTER = "[\\p{L}\\p{N}]";
const WORDS = new RegExp(`${LETTER}+`, "gu");
const BETWEEN = "[^\\p{L}\\p{N}]{0,8}";
const ASCII = /^[\x00-\x7f]*$/;
/** Accents; what voices a kana makes it another. */
const MARKS = /(?![\u3099\u309a])\p{M}/gu;
/** So many in one text are enough to see that there are many. */
const SPANS_MAX = 400;

interface Term {
  readonly whole: RegExp;
  /** Also inside a longer word, where it stands nowhere by itself. */
  readonly within: RegExp;
}

/** `text` as it is compared, and where each of its characters stood; null: where it stands. */
function folded(text: string): { text: string; places: number[] | null } {
  if (ASCII.test(text)) return { text: text.toLowerCase(), places: null };
  const places: number[] = [];
  let at = 0;
  let out = "";
  for (const sign of text) {
    const plain = sign.normalize("NFKD").replace(MARKS, "").normalize("NFC").toUpperCase().toLowerCase();
    for (let unit = 0; unit < plain.length; unit++) places.push(at);
    out += plain;
    at += sign.length;
  }
  return { text: out, places: [...places, at] };
}

function termsOf(query: string): Term[] {
  const found = [...query.matchAll(CHUNK)].map(([chunk, quoted]) => ({ words: folded(chunk).text.match(WORDS) ?? [], isQuoted: quoted !== undefined })).filter(({ words }) => words.length);
  return found.map(({ words, isQuoted }, place) => {
    const body = words.join(BETWEEN);
    // The last word may be unfinished.
    const isOpen = place === found.length - 1 && !isQuoted && (words.at(-1)?.length ?? 0) > 1;
    return { whole: new RegExp(`(?<!${LETTER})${body}${isOpen ? "" : `(?!${LETTER})`}`, "gu"), within: new RegExp(body, "gu") };
  });
}

/** What finds the words of `query` in a text: in order, and none inside another. */
export function finderOf(query: string): (text: string) => Span[] {
  const terms = termsOf(query);
  return (text) => {
    const { text: plain, places } = folded(text);
    const matches = terms.flatMap(({ whole, within }) => {
      const apart = [...plain.matchAll(whole)];
      return apart.length ? apart : [...plain.matchAll(within)];
    });
    const spans: Span[] = [];
    for (const match of matches.sort((a, b) => a.index - b.index)) {
      const end = match.index + match[0].length;
      const span: Span = places ? [places[match.index] ?? 0, places[end] ?? text.length] : [match.index, end];
      if (span[0] >= (spans.at(-1)?.[1] ?? 0) && spans.length < SPANS_MAX) spans.push(span);
    }
    return spans;
  };
}
