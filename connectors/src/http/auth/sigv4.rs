//! AWS Signature Version 4: a request is signed as a whole, right before it is sent.
//!
//! Owns which settings a service gets; the arithmetic is AWS's own crate.

use std::fmt;
use std::time::SystemTime;

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings,
    UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4;
use hyper::header::HeaderName;

use crate::config::{HeaderText, SigV4Config};
use crate::hidden::Hidden;
use crate::http::auth::Entry;
use crate::http::request::header_value;
use crate::http::sender::Request;
use crate::registry::{Place, RegistryError};
use crate::secrets::SecretText;

/// S3 wants its paths signed as they are, and a digest of the body in a header.
const S3: &str = "s3";

/// Where a credential of ours is said to come from, in AWS's own messages.
const PROVIDER: &str = "operators";

/// Who signs for which service.
pub(crate) struct SigV4 {
    region: String,
    service: String,
    access_key: SecretText,
    secret_key: SecretText,
    session_token: Option<SecretText>,
}

impl fmt::Debug for SigV4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigV4")
            .field("region", &self.region)
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}

impl SigV4 {
    pub(crate) fn compile(config: &SigV4Config, place: &Place) -> Result<Self, RegistryError> {
        for (field, text) in [("region", &config.region), ("service", &config.service)] {
            let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            if text.is_empty() || !text.chars().all(allowed) {
                let problem = "is made of lower-case letters, digits and `-`";
                return Err(place.refuse(field, problem));
            }
        }
        let credential = |field: &str, text: &HeaderText| {
            let compiled = SecretText::compile_credential(text);
            compiled.map_err(|problem| place.refuse(field, problem))
        };
        let session_token = config.session_token.as_ref();
        Ok(Self {
            region: config.region.clone(),
            service: config.service.clone(),
            access_key: SecretText::compile(&config.access_key)
                .map_err(|problem| place.refuse("access_key", problem))?,
            secret_key: credential("secret_key", &config.secret_key)?,
            session_token: session_token
                .map(|token| credential("session_token", token))
                .transpose()?,
        })
    }

    /// Signs the request as it is now.
    pub(crate) async fn admit(
        &self,
        request: &mut Request,
        entry: &Entry<'_>,
        hidden: &mut Hidden,
    ) -> Result<(), String> {
        let (tenant, secrets) = (entry.tenant, entry.secrets);
        let session_token = match &self.session_token {
            Some(token) => Some(token.get(tenant, secrets, hidden).await?),
            None => None,
        };
        let credentials = Credentials::new(
            self.access_key.get(tenant, secrets, hidden).await?,
            self.secret_key.get(tenant, secrets, hidden).await?,
            session_token,
            None,
            PROVIDER,
        );
        #[expect(
            clippy::disallowed_methods,
            reason = "a signature is dated; nothing of ours is decided by that time"
        )]
        let now = SystemTime::now();
        self.sign(request, credentials, now)
    }

    /// Adds the signature of that moment.
    pub(crate) fn sign(
        &self,
        request: &mut Request,
        credentials: Credentials,
        now: SystemTime,
    ) -> Result<(), String> {
        let refuse = |_| "the request cannot be signed".to_owned();
        let mut settings = SigningSettings::default();
        if self.service == S3 {
            settings.percent_encoding_mode = PercentEncodingMode::Single;
            settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
            settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        }
        let identity = credentials.into();
        let params = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name(&self.service)
            .time(now)
            .settings(settings)
            .build()
            .map_err(|_| "the request cannot be signed".to_owned())?;
        let mut headers = Vec::new();
        for (name, value) in &request.headers {
            let value = value
                .to_str()
                .map_err(|_| format!("the header `{name}` cannot be signed: it is not ASCII"))?;
            headers.push((name.as_str(), value));
        }
        let signable = SignableRequest::new(
            request.method.as_str(),
            request.url.as_str(),
            headers.into_iter(),
            SignableBody::Bytes(&request.body),
        )
        .map_err(refuse)?;
        let (signed, _signature) = sign(signable, &params.into()).map_err(refuse)?.into_parts();
        let signed: Vec<(String, String)> = signed
            .headers()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        for (name, text) in signed {
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| "the request cannot be signed".to_owned())?;
            let mut value = header_value(&text)?;
            value.set_sensitive(true);
            request.headers.insert(name, value);
        }
        Ok(())
    }
}
