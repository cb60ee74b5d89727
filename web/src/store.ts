// Chats in the browser's IndexedDB, or in memory where it has none (private windows).
import type { Chat } from "./tree.ts";

const kName = "moeflux";
const kStore = "chats";
let opened: Promise<IDBDatabase | null> | undefined;
const memory = new Map<string, Chat>();

function open(): Promise<IDBDatabase | null> {
  opened ??= new Promise((resolve) => {
    let request: IDBOpenDBRequest;
    try {
      request = indexedDB.open(kName, 1);
    } catch {
      return resolve(null);
    }
    request.onupgradeneeded = () => request.result.createObjectStore(kStore, { keyPath: "id" });
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => resolve(null);
    request.onblocked = () => resolve(null);
  });
  return opened;
}

async function run<T>(mode: IDBTransactionMode, use: (store: IDBObjectStore) => IDBRequest<T>): Promise<T | undefined> {
  const database = await open();
  if (!database) return undefined;
  return new Promise((resolve, reject) => {
    const transaction = database.transaction(kStore, mode);
    const request = use(transaction.objectStore(kStore));
    transaction.oncomplete = () => resolve(request.result);
    transaction.onabort = () => reject(transaction.error);
    transaction.onerror = () => reject(transaction.error);
  });
}

export async function allChats(): Promise<Chat[]> {
  const found = await run<Chat[]>("readonly", (store) => store.getAll());
  return found ?? [...memory.values()];
}

export async function putChat(chat: Chat): Promise<void> {
  memory.set(chat.id, chat);
  await run("readwrite", (store) => store.put(structuredClone(chat)));
}

export async function deleteChat(id: string): Promise<void> {
  memory.delete(id);
  await run("readwrite", (store) => store.delete(id));
}
