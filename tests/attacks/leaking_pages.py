"""Pages that try to reach a listener, each in its own way. {to}: http://host:port, {host}: host:port."""

PAGES: dict[str, str] = {
    "fetch": "<script>fetch('{to}/fetch',{{mode:'no-cors'}})</script>",
    "xhr": "<script>x=new XMLHttpRequest();x.open('GET','{to}/xhr');x.send()</script>",
    "image": "<img src='{to}/img'>",
    "srcset": "<img srcset='{to}/srcset 1x'>",
    "picture": "<picture><source srcset='{to}/picture'><img></picture>",
    "image object": "<script>new Image().src='{to}/image-object'</script>",
    "css background": "<style>body{{background:url({to}/css)}}</style>",
    "css import": "<style>@import url({to}/import.css);</style>",
    "css attribute": "<div style=\"background-image:url('{to}/attr')\">x</div>",
    "css cursor and list": "<style>li{{list-style:url({to}/list)}}*{{cursor:url({to}/c),auto}}</style><li>x",
    "font": "<style>@font-face{{font-family:f;src:url({to}/font)}}body{{font-family:f}}</style>text",
    "font object": "<script>new FontFace('f','url({to}/fontface)').load()</script>",
    "stylesheet": "<link rel=stylesheet href='{to}/sheet.css'>",
    "icon": "<link rel=icon href='{to}/icon.png'>",
    "manifest": "<link rel=manifest href='{to}/manifest.json'>",
    "preload": "<link rel=preload as=image href='{to}/preload'><link rel=modulepreload href='{to}/m.js'>",
    "prefetch": "<link rel=prefetch href='{to}/prefetch'><link rel=prerender href='{to}/prerender'>",
    "preconnect": "<link rel=preconnect href='{to}'><link rel=dns-prefetch href='{to}'>",
    "speculation rules": (
        "<script type=speculationrules>{{\"prefetch\":[{{\"source\":\"list\",\"urls\":[\"{to}/spec\"]}}]}}</script>"
    ),
    "script": "<script src='{to}/s.js'></script>",
    "module": "<script type=module src='{to}/m.mjs'></script>",
    "dynamic import": "<script>import('{to}/dyn.js').catch(()=>0)</script>",
    "import map": "<script type=importmap>{{\"imports\":{{\"x\":\"{to}/x.js\"}}}}</script><script type=module>import 'x'</script>",
    "form": "<form id=f action='{to}/form' method=post><input name=a></form><script>f.submit()</script>",
    "form to a frame": "<iframe name=t></iframe><form id=f action='{to}/form' target=t></form><script>f.submit()</script>",
    "iframe": "<iframe src='{to}/iframe'></iframe>",
    "srcdoc": "<iframe srcdoc=\"<img src='{to}/srcdoc'>\"></iframe>",
    "data frame": "<iframe src=\"data:text/html,<img src='{to}/data'>\"></iframe>",
    "window.open": "<script>open('{to}/open');a=document.createElement('a');a.href='{to}/a';a.target='_blank';a.click()</script>",
    "top navigation": "<script>top.location='{to}/top'</script>",
    "own navigation": "<script>location='{to}/own'</script>",
    "link click": "<a id=l href='{to}/click' ping='{to}/ping'>x</a><script>l.click()</script>",
    "download": "<a id=l href='{to}/dl' download>x</a><script>l.click()</script>",
    "meta refresh": "<meta http-equiv=refresh content='0;url={to}/refresh'>",
    "base": "<base href='{to}/'><img src='base.png'><a id=l href='x'>x</a><script>l.click()</script>",
    "websocket": "<script>new WebSocket('ws://{host}/ws')</script>",
    "event source": "<script>new EventSource('{to}/events')</script>",
    "beacon": "<script>navigator.sendBeacon('{to}/beacon','x');fetch('{to}/keep',{{keepalive:true,mode:'no-cors'}})</script>",
    "worker": (
        "<script>new Worker(URL.createObjectURL(new Blob([\"fetch('{to}/worker');importScripts('{to}/imp.js')\"])))</script>"
    ),
    "shared worker": "<script>new SharedWorker('{to}/shared.js')</script>",
    "service worker": "<script>navigator.serviceWorker.register('{to}/sw.js').catch(()=>0)</script>",
    "worklet": "<script>new AudioContext().audioWorklet.addModule('{to}/worklet.js').catch(()=>0)</script>",
    "webrtc": (
        "<body><script id=s>function go(){{p=new RTCPeerConnection({{iceServers:[{{urls:'stun:{host}'}},{{"
        "urls:'turn:{host}?transport=tcp',username:'a',credential:'b'}}]}});p.createDataChannel('x');"
        "p.createOffer().then(o=>p.setLocalDescription(o))}}</script><iframe id=j></iframe><iframe id=f></iframe><script>"
        "j.src='javascript:'+s.text+';go()';f.srcdoc=s.outerHTML+'<script>go()<\\/script>';go()</script>"
    ),
    "webtransport": "<script>new WebTransport('https://{host}/wt')</script>",
    "svg image": "<svg><image href='{to}/svg-image' width=9 height=9 /><use href='{to}/u.svg#x'/></svg>",
    "svg filter": "<svg><filter id=f><feImage href='{to}/fe'/></filter><rect width=9 height=9 filter='url(#f)'/></svg>",
    "svg foreign object": "<svg><foreignObject width=9 height=9><img src='{to}/fo' xmlns='http://www.w3.org/1999/xhtml'/></foreignObject></svg>",
    "svg script": "<svg><script href='{to}/svg.js'></script></svg>",
    "object and embed": "<object data='{to}/obj'></object><embed src='{to}/emb'>",
    "media": "<video src='{to}/v' poster='{to}/poster' autoplay></video><audio src='{to}/a' autoplay></audio><video><track src='{to}/t'></video>",
    "parent and opener": "<script>try{{parent.document.body.innerHTML=\"<img src='{to}/parent'>\"}}catch(e){{}}</script>",
    "message to the parent": "<script>parent.postMessage({{go:'{to}/msg'}},'*');parent.location.hash='{to}'</script>",
    "history": "<script>try{{history.pushState(0,'','{to}/h')}}catch(e){{}};try{{history.replaceState(0,'','{to}/r')}}catch(e){{}}</script>",
    "document.write": "<script>document.write(\"<img src='{to}/write'><script src='{to}/w.js'><\\/script>\")</script>",
    "javascript frame": "<iframe src=\"javascript:'<img src={to}/js>'\"></iframe>",
    "report": "<meta http-equiv=Content-Security-Policy content=\"img-src 'none';report-uri {to}/report\"><img src=x>",
    "portal and fenced frame": "<portal src='{to}/portal'></portal><fencedframe></fencedframe>",
    "payment and credentials": "<script>try{{new PaymentRequest([{{supportedMethods:'{to}/pay'}}],{{total:{{label:'x',amount:{{currency:'EUR',value:'1'}}}}}}).canMakePayment()}}catch(e){{}}</script>",
}  # fmt: skip

# A frame has a WebRTC of its own. Each of these hides `frame`, its HTML, from a script that removes frames.
_GO = (
    "<body><script id=s>function go(){{p=new RTCPeerConnection({{iceServers:[{{urls:'stun:{host}'}}]}});p.createDataChannel("
    "'x');p.createOffer().then(o=>p.setLocalDescription(o))}}</script><script>inner=s.outerHTML+'<script>go()<\\/script>';"
    "frame='<iframe srcdoc=\"'+inner.replaceAll('\"','&quot;')+'\"></iframe>';tree='<p><template shadowroot'+'mode=closed>'+frame+'</template>';"
    "root=(x={{}},d=document)=>(e=d.createElement('p')).attachShadow({{mode:'closed',...x}});"
    "add=e=>document.body.append(e);"
)
_HIDDEN = {
    "shadow tree": "r=root();add(e);r.innerHTML=frame",
    "shadow tree in another": "r=root();add(e);f=root();r.append(e);f.innerHTML=frame",
    "copied shadow tree": "Object.prototype.clonable=1;root({{clonable:true}}).innerHTML=frame;add(e.cloneNode(true))",
    "shadow tree of another document": (
        "root({{}},document.implementation.createHTMLDocument('')).innerHTML=frame;add(document.adoptNode(e))"
    ),
    "custom element": (
        "customElements.define('x-y',class extends HTMLElement{{constructor(){{super();this.attachShadow({{mode:'open'}})"
        ".innerHTML=frame}}}});add(document.createElement('x-y'))"
    ),
    "declared shadow tree": (
        "</script><p id=d><template ShadowRootMode=open><p></template><script>d.shadowRoot.innerHTML=frame"
    ),
    "setHTMLUnsafe": "add(e=document.createElement('p'));e.setHTMLUnsafe(tree)",
    "parseHTMLUnsafe": "add(Document.parseHTMLUnsafe(tree).querySelector('p'))",
    "written shadow tree": "document.write('<p><template shadowroot');document.write(tree.slice(23))",
    "opened document": "setTimeout(()=>{{document.open();document.write(tree);document.close()}},200)",
    "frame with a prefix": (
        "f=document.createElementNS('http://www.w3.org/1999/xhtml','x:iframe');f.srcdoc=inner;add(f)"
    ),
    "busy page": "document.body.insertAdjacentHTML('beforeend',frame);for(t=Date.now()+1500;Date.now()<t;);",
    "WebRTC of a frame": "add(f=document.createElement('iframe'));RTCPeerConnection=f.contentWindow.RTCPeerConnection;go()",
    "javascript address": "location='javascript:'+JSON.stringify(inner)",
    "patched functions": (
        "Reflect.apply=MutationObserver.prototype.observe=Element.prototype.remove=()=>0;"
        "r=root();add(e);r.innerHTML=frame;document.body.insertAdjacentHTML('beforeend',frame)"
    ),
}  # fmt: skip
PAGES |= {name: _GO + script + "</script>" for name, script in _HIDDEN.items()}
