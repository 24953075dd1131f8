// Find words in a text without regard to case and accents, as the server's search does.

export type Span = readonly [start: number, end: number];

const QUERY_TERM = /"([^"]*)"|([^\s"]+)/g;
const LETTER = "[\\p{L}\\p{N}]";
const WORDS = new RegExp(`${LETTER}+`, "gu");
const SEPARATOR = "[^\\p{L}\\p{N}]{0,8}";
const ASCII = /^[\x00-\x7f]*$/;
/** Accents. A kana's voicing mark makes another letter, so it stays. */
const ACCENTS = /(?![\u3099\u309a])\p{M}/gu;
/** The most matches in one text. */
const SPANS_MAX = 400;

interface Term {
  readonly whole: RegExp;
  /** Matches also inside a longer word; used where the word occurs nowhere by itself. */
  readonly within: RegExp;
}

/** Return the normalized text and the original offset of each character; null if the offsets are the same. */
function normalize(text: string): { text: string; offsets: number[] | null } {
  if (ASCII.test(text)) return { text: text.toLowerCase(), offsets: null };
  const places: number[] = [];
  let offset = 0;
  let normalized = "";
  for (const char of text) {
    const plain = char.normalize("NFKD").replace(ACCENTS, "").normalize("NFC").toUpperCase().toLowerCase();
    for (let unit = 0; unit < plain.length; unit++) places.push(offset);
    normalized += plain;
    offset += char.length;
  }
  return { text: normalized, offsets: [...places, offset] };
}

function parseTerms(query: string): Term[] {
  const terms = [...query.matchAll(QUERY_TERM)].map(([chunk, quoted]) => ({ words: normalize(chunk).text.match(WORDS) ?? [], isQuoted: quoted !== undefined })).filter(({ words }) => words.length);
  return terms.map(({ words, isQuoted }, index) => {
    const body = words.join(SEPARATOR);
    // The last word may be unfinished.
    const isPrefix = index === terms.length - 1 && !isQuoted && (words.at(-1)?.length ?? 0) > 1;
    return { whole: new RegExp(`(?<!${LETTER})${body}${isPrefix ? "" : `(?!${LETTER})`}`, "gu"), within: new RegExp(body, "gu") };
  });
}

/** Return a function that finds the words of `query` in a text: in order, without overlaps. */
export function createFinder(query: string): (text: string) => Span[] {
  const terms = parseTerms(query);
  return (text) => {
    const { text: plain, offsets: places } = normalize(text);
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
