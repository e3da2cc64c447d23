// The inbox: permission requests and questions of all sessions.
//
// Rules: the exact request is shown; the focus never starts on Allow; a new card ignores answers for half a second, so that a
// key pressed for something else answers nothing; an unanswered request is denied at its deadline.
import { useEffect, useState } from "preact/hooks";
import type { JSX } from "preact";
import { type PendingRequest, post, sessionPath } from "../api/client";
import { type Question, list, record, text } from "../api/events";
import { href } from "../router";
import { can, pending, pendingKnown, reload, sessions } from "../state/overview";
import { Diff } from "../ui/diff";
import { Action, Badge, Empty, Json, Loading, now, toast } from "../ui/parts";
import { oneLine, visible } from "../ui/visible";
import { commandOf } from "./row";

const GUARD_MS = 500;

export function Inbox(): JSX.Element {
  const open = [...pending.value].sort((a, b) => a.askedAt.localeCompare(b.askedAt));
  return (
    <>
      <header class="page-head">
        <h1>Inbox</h1>
        <NotifyButton />
      </header>
      {!pendingKnown.value && <Loading what="requests" />}
      {pendingKnown.value && open.length === 0 && (
        <Empty title="No agent waits for you">
          <p>Permission requests and questions of all sessions appear here.</p>
        </Empty>
      )}
      {open.map((request) => <RequestCard key={`${request.sessionId} ${request.sequence}`} request={request} linked />)}
    </>
  );
}

function NotifyButton(): JSX.Element | null {
  const known = typeof Notification !== "undefined" ? Notification.permission : "denied";
  const [state, setState] = useState(known);
  if (state !== "default") return null;
  return <Action run={async () => setState(await Notification.requestPermission())}>Notify me in this browser</Action>;
}

export function RequestCard({ request, linked = false }: { request: PendingRequest; linked?: boolean }): JSX.Element {
  const [guarded, setGuarded] = useState(true);
  useEffect(() => {
    const timer = setTimeout(() => setGuarded(false), GUARD_MS);
    return () => clearTimeout(timer);
  }, []);
  const info = sessions.value.find(({ sessionId }) => sessionId === request.sessionId);
  const name = info?.title || info?.name || request.sessionId;
  const isPermission = request.type === "permission";
  const label = `${isPermission ? "Permission request" : "Question"} of ${oneLine(name, 80)}`;
  return (
    <section class="request" aria-label={label}>
      <header>
        <Badge tone="warn">{isPermission ? "Permission" : "Question"}</Badge>
        {linked ? <a href={href(["s", request.sessionId])}>{oneLine(name, 120)}</a> : <span>{oneLine(name, 120)}</span>}
        <Countdown deadline={request.deadline ?? ""} />
      </header>
      {request.type === "permission" ? <PermissionBody request={request} guarded={guarded} /> : <QuestionBody request={request} guarded={guarded} />}
    </section>
  );
}

function Countdown({ deadline }: { deadline: string }): JSX.Element | null {
  if (!deadline) return null;
  const left = Math.round((Date.parse(deadline) - now.value) / 1000);
  if (left <= 0) return <span class="muted countdown">expired: denied</span>;
  const minutes = Math.floor(left / 60);
  return <span class="muted countdown">{`denied in ${minutes > 0 ? `${minutes} min ` : ""}${left % 60} s`}</span>;
}

function expired(request: PendingRequest): boolean {
  return Boolean(request.deadline) && Date.parse(request.deadline ?? "") <= now.value;
}

async function reply(request: PendingRequest, path: string, body: unknown, done: string): Promise<void> {
  try {
    await post(sessionPath(request.sessionId, path), body);
    toast(done);
  } finally {
    await reload();
  }
}

function PermissionBody({ request, guarded }: { request: PendingRequest; guarded: boolean }): JSX.Element {
  const data = record(request.data);
  const metadata = record(data.metadata);
  const [reason, setReason] = useState("");
  const pattern = metadata.pattern === undefined || metadata.pattern === null ? "" : typeof metadata.pattern === "string" ? metadata.pattern : JSON.stringify(metadata.pattern);
  const path = `/permissions/${encodeURIComponent(text(data.permission_id))}/reply`;
  const blocked = guarded || expired(request) || !can("answer");
  const deny = async (): Promise<void> => {
    await reply(request, path, { reply: "reject" }, "Denied.");
    if (reason.trim() !== "" && can("drive")) {
      await post(sessionPath(request.sessionId, "/messages"), { message: reason, whenBusy: "queue" });
    }
  };
  const known = new Set(["tool", "input", "command", "pattern", "asked_by", "title", "changes"]);
  const rest = Object.fromEntries(Object.entries(metadata).filter(([name]) => !known.has(name)));
  return (
    <>
      <p>
        The agent wants to use <code>{oneLine(text(metadata.tool) || text(data.action), 120)}</code>
        {text(metadata.title) !== "" && `: ${oneLine(text(metadata.title))}`}
      </p>
      <pre class="output exact" tabIndex={0} aria-label="The exact request">{visible(commandOf(metadata))}</pre>
      {list(metadata.changes).map((change, index) => <Change key={index} change={change} />)}
      {Object.keys(rest).length > 0 && (
        <details>
          <summary>More that the agent sent</summary>
          <Json value={rest} label="More that the agent sent" />
        </details>
      )}
      <p class="muted small">{metadata.asked_by ? visible(`Asked because of the rule ${text(metadata.asked_by)}`) : "Asked by the agent. No rule of the policy asks about this."}</p>
      {can("answer") ? (
        <>
          {can("drive") && (
            <label class="field">
              Reason for a denial, sent to the agent
              <input value={reason} maxLength={2000} onInput={(event) => setReason(event.currentTarget.value)} />
            </label>
          )}
          <div class="buttons">
            <Action kind="danger" disabled={blocked} run={deny}>Deny</Action>
            <Action disabled={blocked} run={() => reply(request, path, { reply: "once" }, "Allowed once.")}>Allow once</Action>
            <Action disabled={blocked} run={() => reply(request, path, { reply: "always" }, "Allowed for this session.")}>Allow for this session</Action>
          </div>
          <p class="muted small">
            For this session allows {pattern ? <>what matches <code>{oneLine(pattern, 200)}</code></> : "exactly the same request"}. Revoke it in the session's policy.
          </p>
        </>
      ) : (
        <p class="muted small">Your token cannot answer. It needs the scope answer.</p>
      )}
    </>
  );
}

function Change({ change }: { change: unknown }): JSX.Element {
  const { path, diff } = record(change);
  if (typeof diff === "string") return <Diff text={diff} label={oneLine(text(path), 80)} />;
  return <Json value={change} label="Change" />;
}

interface Prompt {
  header: string;
  question: string;
  many: boolean;
  options: { label: string; description: string }[];
}

function promptsOf(question: Question): Prompt[] {
  const all = list(record(question.metadata).questions).map(record);
  if (all.length === 0) return [{ header: "", question: question.prompt, many: false, options: question.options.map((label) => ({ label, description: "" })) }];
  return all.map((one) => ({
    header: text(one.header),
    question: text(one.question) || question.prompt,
    many: one.multiSelect === true,
    options: list(one.options).map((option) => ({ label: text(record(option).label) || text(option), description: text(record(option).description) })),
  }));
}

function QuestionBody({ request, guarded }: { request: PendingRequest; guarded: boolean }): JSX.Element {
  const question = request.data as unknown as Question;
  const prompts = promptsOf(question);
  const [answers, setAnswers] = useState<string[][]>(prompts.map(() => []));
  const [own, setOwn] = useState<string[]>(prompts.map(() => ""));
  const path = `/questions/${encodeURIComponent(question.question_id)}`;
  const all = answers.map((chosen, index) => (own[index]?.trim() ? [...chosen, own[index].trim()] : chosen));
  const blocked = guarded || expired(request) || !can("answer");
  const choose = (at: number, label: string, many: boolean, on: boolean): void =>
    setAnswers(answers.map((chosen, index) => (index !== at ? chosen : many ? (on ? [...chosen, label] : chosen.filter((one) => one !== label)) : [label])));
  return (
    <>
      {prompts.map((prompt, at) => (
        <fieldset key={at}>
          <legend>{oneLine([prompt.header, prompt.question].filter(Boolean).join(": "))}</legend>
          {prompt.options.map(({ label, description }) => (
            <label key={label} class="check">
              <input type={prompt.many ? "checkbox" : "radio"} name={`${request.sessionId}-${request.sequence}-${at}`} checked={answers[at]?.includes(label) ?? false}
                onChange={(event) => choose(at, label, prompt.many, event.currentTarget.checked)} />
              <span>{oneLine(label)}{description && <span class="muted"> {oneLine(description)}</span>}</span>
            </label>
          ))}
          <label class="field">
            {prompt.options.length > 0 ? "Another answer" : "Answer"}
            <input value={own[at] ?? ""} onInput={(event) => setOwn(own.map((before, index) => (index === at ? event.currentTarget.value : before)))} />
          </label>
        </fieldset>
      ))}
      {can("answer") ? (
        <div class="buttons">
          <Action disabled={blocked} run={() => reply(request, `${path}/reject`, undefined, "Declined.")}>Decline</Action>
          <Action kind="primary" disabled={blocked || all.some((chosen) => chosen.length === 0)} run={() => reply(request, `${path}/reply`, { answers: all }, "Answered.")}>Answer</Action>
        </div>
      ) : (
        <p class="muted small">Your token cannot answer. It needs the scope answer.</p>
      )}
    </>
  );
}
