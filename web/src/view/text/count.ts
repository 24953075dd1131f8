// Format a count with its noun.

export const count = (many: number, one: string, more = `${one}s`) => `${many.toLocaleString("en")} ${many === 1 ? one : more}`;
