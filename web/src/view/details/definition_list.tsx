// A list of names and values. Unknown values are left out.

import type { ComponentChildren } from "preact";

type Definition = readonly [name: string, value: ComponentChildren];

export function DefinitionList({ items }: { items: readonly Definition[] }) {
  return <dl class="facts">{items.map(([name, value]) => value && <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>;
}

export function Section({ title, children }: { title: string; children: ComponentChildren }) {
  return <section><h3>{title}</h3>{children}</section>;
}
