// A component that is drawn again only where its properties differ.
import { Component, createElement, type ComponentType } from "preact";

export function memo<P extends object>(inner: ComponentType<P>, same: (a: P, b: P) => boolean): ComponentType<P> {
  return class extends Component<P> {
    shouldComponentUpdate(next: P): boolean { return !same(this.props as P, next); }
    render() { return createElement(inner, this.props as P); }
  };
}
