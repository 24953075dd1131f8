// Render the content again only when its version changes.

import { Component, type ComponentChildren } from "preact";

interface Props {
  version: string | number;
  render: () => ComponentChildren;
}

export class Memo extends Component<Props> {
  override shouldComponentUpdate(next: Props): boolean {
    return next.version !== this.props.version;
  }

  override render({ render }: Props): ComponentChildren {
    return render();
  }
}
