// Names and values, one below the other; what is not known is left out.

import type { ComponentChildren } from "preact";

type Fact = readonly [name: string, value: ComponentChildren];

export function Facts({ told }: { told: readonly Fact[] }) {
  return <dl class="facts">{told.map(([name, value]) => value && <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>;
}

export function Part({ title, children }: { title: string; children: ComponentChildren }) {
  return <section><h3>{title}</h3>{children}</section>;
}
