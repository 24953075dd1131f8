// So many of something, as people say it.

export const count = (many: number, one: string, more = `${one}s`) => `${many.toLocaleString("en")} ${many === 1 ? one : more}`;
