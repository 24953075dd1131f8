// Icons in the colour of the text. A label beside each says what it means.

const createIcon = (path: string) => () => (
  <svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round">
    <path d={path} />
  </svg>
);

export const AttachIcon = createIcon("M13 7.5 8 12.6a3 3 0 0 1-4.3-4.3L9 3a2 2 0 0 1 2.9 2.9L6.8 11a1 1 0 0 1-1.5-1.4L10 5");
export const SearchIcon = createIcon("M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9ZM10.5 10.5 14 14");
export const NewIcon = createIcon("M3 13h2.2L13 5.2 10.8 3 3 10.8ZM9 4.8 11.2 7");
export const ListIcon = createIcon("M2.5 4h11M2.5 8h11M2.5 12h11");
export const MenuIcon = createIcon("M3.5 8h.01M8 8h.01M12.5 8h.01");
export const PendingIcon = createIcon("M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11ZM8 5v3.2l2 1.3");
export const SettingsIcon = createIcon("M8 5.8a2.2 2.2 0 1 0 0 4.4 2.2 2.2 0 0 0 0-4.4ZM8 1.8v2M8 12.2v2M1.8 8h2M12.2 8h2M3.6 3.6 5 5M11 11l1.4 1.4M3.6 12.4 5 11M11 5l1.4-1.4");
export const MemoryIcon = createIcon("M4.5 2.5h7v11L8 10.8l-3.5 2.7Z");
export const AgentsIcon = createIcon("M8 2.8a2.6 2.6 0 1 0 0 5.2 2.6 2.6 0 0 0 0-5.2ZM3 13.5c.4-2.6 2.4-4 5-4s4.6 1.4 5 4");
export const DetailsIcon = createIcon("M2.5 3h11v10h-11ZM10 3v10");
export const CloseIcon = createIcon("M4 4l8 8M12 4l-8 8");
export const CopyIcon = createIcon("M5.5 5.5h8v8h-8ZM10.5 5.5v-3h-8v8h3");
export const CheckIcon = createIcon("M3 8.5 6.5 12 13 4.5");
