// The changes of a session: each path with its class, the differences, and apply or discard of exactly the shown set.
import { useEffect, useState } from "preact/hooks";
import type { JSX } from "preact";
import { call, errorText, post, sessionPath } from "../api/client";
import { list, number, record, text } from "../api/events";
import { route, setQuery } from "../router";
import { can } from "../state/overview";
import type { OpenSession } from "../state/session";
import { Diff } from "../ui/diff";
import { Badge, Confirm, Empty, Loading, Problem, type Tone, toast } from "../ui/parts";
import { oneLine, visible } from "../ui/visible";

interface Change {
  path: string;
  kind: string;
  class: string;
  why: string;
  added: number;
  removed: number;
  binary: boolean;
  conflict: boolean;
}

interface ChangeSet {
  set: number | null;
  digest: string;
  changes: Change[];
  commits: Record<string, unknown>[];
  problem: string;
  patches: Map<string, string>;
}

const CLASSES: [string, string, string, Tone][] = [
  ["conflict", "Changed on the host too", "The host's file changed after the session started. Apply refuses it.", "bad"],
  ["runs_by_itself", "Runs by itself", "Programs start these files without asking, such as CI workflows. Each needs a confirmation.", "warn"],
  ["refused", "Refused", "The policy does not let the session change these paths.", "bad"],
  ["plain", "Plain", "Ordinary files.", "neutral"],
  ["ignored", "Ignored by git", "Applied only if you choose so.", "neutral"],
];

async function read(id: string): Promise<ChangeSet> {
  const [shown, patch] = await Promise.all([
    call(sessionPath(id, "/changes")).then((response) => response.json() as Promise<Record<string, unknown>>),
    call(sessionPath(id, "/changes?format=diff")).then((response) => response.text()),
  ]);
  const changes = list(shown.changes).map(record).map((one) => ({
    path: text(one.path), kind: text(one.kind), class: text(one.class), why: text(one.why),
    added: number(one.added), removed: number(one.removed), binary: one.binary === true, conflict: one.conflict === true,
  }));
  const set = typeof shown.set === "number" ? shown.set : null;
  return { set, digest: text(shown.digest), changes, commits: list(shown.commits).map(record), problem: text(record(shown.commitsProblem).detail), patches: patchesOf(patch) };
}

/** Splits a patch into one for each path. */
export function patchesOf(patch: string): Map<string, string> {
  const found = new Map<string, string>();
  for (const part of patch.split(/^(?=diff --git )/m)) {
    const name = /^\+\+\+ b\/(.*)$/m.exec(part)?.[1] ?? /^--- a\/(.*)$/m.exec(part)?.[1] ?? /^diff --git a\/(.*) b\//.exec(part)?.[1];
    if (part.startsWith("diff --git ") && name) found.set(unquoted(name), part);
  }
  return found;
}

function unquoted(name: string): string {
  return name.replace(/\t$/, "");
}

export function Changes({ open }: { open: OpenSession }): JSX.Element {
  void open.version.value;
  const [shown, setShown] = useState<ChangeSet | null>(null);
  const [problem, setProblem] = useState("");
  const [confirmed, setConfirmed] = useState<Set<string>>(new Set());
  const [chosen, setChosen] = useState<Set<string>>(new Set());
  const [asked, ask] = useState<"" | "apply" | "discard">("");
  const split = route.value.query.get("view") === "split";
  const turns = open.timeline.totals.turns;
  const load = async (): Promise<void> => {
    try {
      setShown(await read(open.id));
      setProblem("");
    } catch (error) {
      setProblem(errorText(error));
    }
  };
  useEffect(() => void load(), [open.id, turns, open.timeline.running, open.timeline.ended]);
  if (problem) return <Problem text={problem} />;
  if (!shown) return <Loading what="changes" />;
  if (shown.changes.length === 0 && shown.commits.length === 0) {
    return <Empty title="No changes"><p>The workspace of this session equals the host's directory.</p></Empty>;
  }
  const matching = { "if-match": `"${shown.digest}"` };
  const apply = async (): Promise<void> => {
    const body = { paths: [...chosen], confirm: [...confirmed], skipRefused: true, ignored: [...chosen].some((path) => shown.changes.find((one) => one.path === path)?.class === "ignored") };
    const done = (await (await post(sessionPath(open.id, "/apply"), body, matching)).json()) as Record<string, unknown>;
    toast(`${list(done.applied).length} paths were applied.`);
    await load();
  };
  const discard = async (): Promise<void> => {
    await post(sessionPath(open.id, "/discard"), undefined, matching);
    toast("The changes were discarded.");
    await load();
  };
  const canAct = can("drive") && shown.set !== null;
  return (
    <div class="changes">
      <div class="toolbar">
        <span class="facts">
          <span>{`Set ${shown.set ?? "of an import"}, ${shown.changes.length} paths`}</span>
          <code class="muted" title={shown.digest}>{shown.digest.slice(0, 12)}</code>
        </span>
        <button type="button" class="button plain" aria-pressed={split} onClick={() => setQuery("view", split ? "" : "split")}>Side by side</button>
        {canAct && <button type="button" class="button primary" disabled={!open.timeline.ended} onClick={() => ask("apply")}>{chosen.size > 0 ? `Apply ${chosen.size} chosen` : "Apply all"}</button>}
        {canAct && <button type="button" class="button danger" disabled={!open.timeline.ended} onClick={() => ask("discard")}>Discard all</button>}
      </div>
      {canAct && !open.timeline.ended && <p class="notice info">Changes can be applied or discarded when the session has ended. Stop the session first.</p>}
      {shown.problem && <Problem text={shown.problem} />}
      {shown.commits.length > 0 && (
        <section>
          <h2>Commits</h2>
          <ul class="commits">
            {shown.commits.map((commit, index) => (
              <li key={index}><code>{text(commit.id).slice(0, 10)}</code> {oneLine(text(commit.subject) || text(commit.message))}</li>
            ))}
          </ul>
        </section>
      )}
      {CLASSES.map(([key, name, about, tone]) => (
        <ClassGroup key={key} name={name} about={about} tone={tone} shown={shown} split={split}
          changes={shown.changes.filter((one) => (one.conflict ? "conflict" : one.class) === key)}
          confirmed={key === "runs_by_itself" ? confirmed : null} onConfirm={(path, on) => setConfirmed(toggled(confirmed, path, on))}
          chosen={canAct && key !== "refused" && key !== "conflict" ? chosen : null} onChoose={(path, on) => setChosen(toggled(chosen, path, on))} />
      ))}
      {asked === "apply" && (
        <Confirm title="Apply these changes to the host?" yes="Apply" run={apply} onClose={() => ask("")}
          text={`Only the shown set ${shown.set} is applied; if it changed since, nothing happens. Refused paths and those that run by themselves without a confirmation are left out.`} />
      )}
      {asked === "discard" && <Confirm title="Discard all changes?" yes="Discard" run={discard} onClose={() => ask("")} text="The changes of this session are deleted. This cannot be undone." />}
    </div>
  );
}

function toggled(before: Set<string>, path: string, on: boolean): Set<string> {
  const after = new Set(before);
  if (on) after.add(path);
  else after.delete(path);
  return after;
}

function ClassGroup(props: {
  name: string; about: string; tone: Tone; changes: Change[]; shown: ChangeSet; split: boolean;
  confirmed: Set<string> | null; onConfirm: (path: string, on: boolean) => void;
  chosen: Set<string> | null; onChoose: (path: string, on: boolean) => void;
}): JSX.Element | null {
  if (props.changes.length === 0) return null;
  return (
    <section>
      <h2><Badge tone={props.tone}>{props.name}</Badge></h2>
      <p class="muted small">{props.about}</p>
      {props.changes.map((one) => (
        <details key={one.path} class="changed" open={props.changes.length <= 8 && !one.binary && props.shown.patches.has(one.path)}>
          <summary>
            <code>{visible(one.path)}</code> <span class="muted">{one.kind}</span>{" "}
            {(one.added > 0 || one.removed > 0) && <span class="facts"><span class="added">{`+${one.added}`}</span><span class="removed">{`−${one.removed}`}</span></span>}
            {one.why && <span class="muted">{oneLine(one.why)}</span>}
          </summary>
          <div class="facts">
            {props.chosen && <label class="check"><input type="checkbox" checked={props.chosen.has(one.path)} onChange={(event) => props.onChoose(one.path, event.currentTarget.checked)} /> Choose {oneLine(one.path, 80)}</label>}
            {props.confirmed && <label class="check"><input type="checkbox" checked={props.confirmed.has(one.path)} onChange={(event) => props.onConfirm(one.path, event.currentTarget.checked)} /> Confirm that {oneLine(one.path, 80)} may run by itself</label>}
          </div>
          {one.binary ? <p class="muted">Binary file.</p> : props.shown.patches.has(one.path) && <Diff text={props.shown.patches.get(one.path) ?? ""} split={props.split} label={oneLine(one.path, 80)} />}
        </details>
      ))}
    </section>
  );
}
