; The installer for Windows: for one person, without an administrator. Inno Setup 6; installer/build.py runs it.
;   ISCC /DVersion=0.1.0 /DProgram=build\program\hearth /DIcons=build\icons /Odist installer\windows\hearth.iss

#ifndef Version
  #error Version is not given
#endif

[Setup]
AppId={{6B0E2A55-5D0C-4F0E-9C43-8E1F0A7D52B1}
AppName=Hearth
AppVersion={#Version}
AppPublisher=The Hearth developers
VersionInfoVersion={#Version}
DefaultDirName={localappdata}\Programs\Hearth
DefaultGroupName=Hearth
DisableProgramGroupPage=yes
DisableDirPage=auto
PrivilegesRequired=lowest
; installer/start.py holds it for as long as the window lives.
AppMutex=io.github.hearth.Hearth
CloseApplications=yes
ArchitecturesAllowed=x64compatible
ArchitecturesInstallIn64BitMode=x64compatible
MinVersion=10.0.17763
OutputBaseFilename=hearth-{#Version}-windows-x86_64
SetupIconFile={#Icons}\hearth.ico
UninstallDisplayIcon={app}\hearth.exe
UninstallDisplayName=Hearth
LicenseFile=..\..\LICENSE
#ifdef Quick
; for trials: try_installer.sh
Compression=lzma2/fast
SolidCompression=no
#else
Compression=lzma2/max
SolidCompression=yes
#endif
WizardStyle=modern
ChangesAssociations=yes

[Languages]
Name: "en"; MessagesFile: "compiler:Default.isl"
Name: "de"; MessagesFile: "compiler:Languages\German.isl"

[CustomMessages]
en.DesktopIcon=Put an icon on the desktop
de.DesktopIcon=Symbol auf den Desktop legen
en.OpenModels=Offer Hearth under "Open with" for GGUF models
de.OpenModels=Hearth bei GGUF-Modellen unter "Öffnen mit" anbieten
en.ModelFile=GGUF language model
de.ModelFile=Sprachmodell im Format GGUF
en.StartNow=Start Hearth
de.StartNow=Hearth starten
en.DeleteData=Chats, settings and models are kept in%n%1%nand take %2.%n%nDelete them too? This cannot be undone.
de.DeleteData=Chats, Einstellungen und Modelle liegen in%n%1%nund belegen %2.%n%nAuch löschen? Das lässt sich nicht rückgängig machen.

[Tasks]
Name: "desktopicon"; Description: "{cm:DesktopIcon}"; Flags: unchecked
Name: "openmodels"; Description: "{cm:OpenModels}"

[InstallDelete]
; Files of an older version must not be imported by this one.
Type: filesandordirs; Name: "{app}\_internal"

[Files]
Source: "{#Program}\*"; DestDir: "{app}"; Flags: ignoreversion recursesubdirs createallsubdirs

[Icons]
Name: "{autoprograms}\Hearth"; Filename: "{app}\hearth.exe"; AppUserModelID: "io.github.hearth.Hearth"
Name: "{autodesktop}\Hearth"; Filename: "{app}\hearth.exe"; AppUserModelID: "io.github.hearth.Hearth"; Tasks: desktopicon

[Registry]
Root: HKA; Subkey: "Software\Classes\Hearth.gguf"; ValueType: string; ValueData: "{cm:ModelFile}"; Flags: uninsdeletekey; Tasks: openmodels
Root: HKA; Subkey: "Software\Classes\Hearth.gguf\DefaultIcon"; ValueType: string; ValueData: "{app}\hearth.exe,0"; Tasks: openmodels
Root: HKA; Subkey: "Software\Classes\Hearth.gguf\shell\open\command"; ValueType: string; ValueData: """{app}\hearth.exe"" ""%1"""; Tasks: openmodels
Root: HKA; Subkey: "Software\Classes\.gguf\OpenWithProgids"; ValueType: none; ValueName: "Hearth.gguf"; Flags: uninsdeletevalue; Tasks: openmodels
Root: HKA; Subkey: "Software\Classes\Applications\hearth.exe\SupportedTypes"; ValueType: string; ValueName: ".gguf"; ValueData: ""; Flags: uninsdeletekey; Tasks: openmodels

[Run]
Filename: "{app}\hearth.exe"; Description: "{cm:StartNow}"; Flags: nowait postinstall skipifsilent

[Code]
function BytesIn(const Folder: String): Int64;
var
  Found: TFindRec;
begin
  Result := 0;
  if FindFirst(AddBackslash(Folder) + '*', Found) then
  try
    repeat
      if (Found.Name <> '.') and (Found.Name <> '..') then
        if (Found.Attributes and FILE_ATTRIBUTE_DIRECTORY) <> 0 then
        begin
          { What a link leads to lies elsewhere, and is neither counted nor deleted. }
          if (Found.Attributes and FILE_ATTRIBUTE_REPARSE_POINT) = 0 then
            Result := Result + BytesIn(AddBackslash(Folder) + Found.Name);
        end
        else
          Result := Result + (Int64(Found.SizeHigh) shl 32) + Found.SizeLow;
    until not FindNext(Found);
  finally
    FindClose(Found);
  end;
end;

function InWords(const Bytes: Int64): String;
begin
  if Bytes >= 1000000000 then
    Result := IntToStr(Bytes div 1000000000) + '.' + IntToStr((Bytes mod 1000000000) div 100000000) + ' GB'
  else
    Result := IntToStr((Bytes + 999999) div 1000000) + ' MB';
end;

procedure CurUninstallStepChanged(Step: TUninstallStep);
var
  Folder: String;
begin
  if (Step <> usPostUninstall) or UninstallSilent then
    exit;
  Folder := ExpandConstant('{localappdata}\Hearth');
  if DirExists(Folder) then
    if SuppressibleMsgBox(FmtMessage(CustomMessage('DeleteData'), [Folder, InWords(BytesIn(Folder))]),
        mbConfirmation, MB_YESNO or MB_DEFBUTTON2, IDNO) = IDYES then
      DelTree(Folder, True, True, True);
end;
