// Draws its content again only when its version is another: what has not changed costs nothing.

import { Component, type ComponentChildren } from "preact";

interface Props {
  version: string | number;
  draw: () => ComponentChildren;
}

export class Steady extends Component<Props> {
  override shouldComponentUpdate(next: Props): boolean {
    return next.version !== this.props.version;
  }

  override render({ draw }: Props): ComponentChildren {
    return draw();
  }
}
